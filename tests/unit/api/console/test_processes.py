"""The processes' pages: what they show, what their forms come to, the log as it comes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from console_world import World
from kennel.domain.process import LogPiece
from running_fakes import FakeLog, FakeRunning, process

pytestmark = pytest.mark.anyio

P = "/console/p/default/sandboxes/main"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
PIECE = {"hx-request": "true"}


@pytest.fixture
def world() -> World:
    return World(running=FakeRunning())


class _Log(FakeLog):
    def __init__(self, *pieces: LogPiece) -> None:
        self.pieces = pieces
        self.facts = process()

    async def __aiter__(self) -> Any:
        for piece in self.pieces:
            yield piece


async def test_the_list_is_not_replaced_while_it_is_the_same(world: Any) -> None:
    browser = await world.browser().login()
    page = await browser.get(f"{P}/processes")
    assert ">p1</a>" in page.text
    seen = page.text.partition("?seen=")[2][:16]
    assert (await browser.get(f"{P}/processes-rows?seen={seen}", **PIECE)).status_code == 204
    other = await browser.get(f"{P}/processes-rows?seen=other", **PIECE)
    assert ">p1</a>" in other.text


async def test_a_process_is_started_signalled_and_ended(world: Any) -> None:
    browser, asked = await world.browser().login("runner"), world.running.processes.asked
    words = {"command": "sleep 9", "cwd": "", "id": "mine", "keepAwake": "1"}
    answer = await browser.submit(f"{P}/processes", words)
    assert answer.headers["location"] == f"{P}/processes/p1"
    verb, command, options = asked.pop()
    assert (verb, command.command, command.cwd) == ("start", "sleep 9", "/workspace")
    assert options == {"process_id": "mine", "stdin": False, "keep_awake": True}
    await browser.submit(f"{P}/processes/p1/signal", {"signal": "USR1"})
    assert asked.pop()[:4] == ("default", "/sandboxes/main", "p1", 10)
    answer = await browser.submit(f"{P}/processes/p1/kill", {"here": "1"})
    assert answer.headers["location"] == f"{P}/processes/p1"
    assert (await browser.submit(f"{P}/processes/p1/signal", {"signal": "NO"})).status_code == 400
    assert (await browser.get(f"{P}/processes/none")).status_code == 404


async def test_a_reader_sees_the_list_alone(world: Any) -> None:
    browser = await world.browser().login("reader")
    page = await browser.get(f"{P}/processes")
    assert "p1" in page.text
    assert "<form" not in page.text.partition("<main")[2]
    assert (await browser.get(f"{P}/processes/p1")).status_code == 403
    assert (await browser.submit(f"{P}/processes/p1/kill", {})).status_code == 403


async def test_a_log_is_text_on_the_page_and_on_its_way(world: Any, monkeypatch: Any) -> None:
    pieces = (
        LogPiece(0, None, missed=7),
        LogPiece(7, "stdout", HOSTILE.encode()[:9]),
        LogPiece(16, "stdout", HOSTILE.encode()[9:] + b"\x1b[3"),
        LogPiece(80, "stderr", b"err\r"),
        LogPiece(84, "stdout", b"1mred\x1b[0m\n"),
    )
    monkeypatch.setattr("running_fakes.FakeLog", lambda: _Log(*pieces))
    browser = await world.browser().login("runner")
    page = await browser.get(f"{P}/processes/p1")
    assert "<img" not in page.text
    assert "&lt;img src=</span>" in page.text
    assert '<span class="stdout">red\n</span>' in page.text
    live = await browser.get(f"{P}/processes/p1/log", **{"last-event-id": "5"})
    messages = [block.split("\n") for block in live.text.split("\n\n") if "data: " in block]
    told = [(lines[0], json.loads(lines[-1].removeprefix("data: "))) for lines in messages]
    assert told[0] == ("event: missed", {"bytes": 7})
    assert ["id: 16" in lines for lines in messages] == [False, True, False, False, False, False]
    assert told[1] == ("event: piece", {"stream": "stdout", "text": HOSTILE[:9]})
    assert told[-2] == ("event: piece", {"stream": "stdout", "text": "red\n"})
    assert told[-1] == ("event: over", {"said": "ended with exit code 0"})
    assert world.running.processes.asked[-1][3] == 5
