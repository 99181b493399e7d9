"""The files beside a room's talk: as text, a glance at what runs, nothing woken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from console_world import World, event, view
from fake_files import FakeFiles
from kennel.api.console import room_files

pytestmark = pytest.mark.anyio

P = "/console/p/default/rooms/r1"
PIECE = {"hx-request": "true"}
HOSTILE = b"<img src=x onerror=alert(1)>\n\xe2\x80\xae\xff\"'"
ASSIGNED = {"roomId": "r1", "path": "/sandboxes/main", "generation": 1}


@pytest.fixture
def world() -> World:
    made = World(files=FakeFiles(folders={b"/workspace", b"/srv"}))
    made.files.content = {b"/workspace/" + HOSTILE: b"", b"/srv/there": b"12345"}
    made.streams.streams["/rooms/r1"] = [event(1, "room/sandbox-assigned", ASSIGNED)]
    return made


def _shell_in(world: Any, cwd: str) -> None:
    saved = {"path": "/sandboxes/main", "cwd": cwd, "env": {}, "since": 0}
    world.streams.streams["/rooms/r1"].append(event(2, "room/shell-saved", saved))


async def test_names_are_text_and_lead_to_the_files_page(world: Any) -> None:
    page = (await (await world.browser().login()).get(P)).text
    panel = page.partition('id="files"')[2].partition("</ul>")[0]
    assert "&lt;img" in panel
    assert "<img" not in panel
    assert "\u202e" not in panel
    assert 'files?path=/workspace/%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E%0A%E2%80%AE%FF%22%27"' in panel


async def test_it_is_where_the_shell_is_and_says_what_it_leaves_out(world: Any, monkeypatch: Any) -> None:
    _shell_in(world, "/srv")
    world.files.content[b"/srv/zzz"] = b""
    monkeypatch.setattr(room_files, "MOST", 1)
    piece = (await (await world.browser().login()).get(f"{P}/files", **PIECE)).text
    assert "<html" not in piece
    assert "/srv/there" in piece
    assert ">0 B<" in piece
    assert "zzz" not in piece
    assert "The first 1" in piece


@pytest.mark.parametrize("cwd", ["/gone<b>", "relative", "/nul\0"])
async def test_a_directory_that_is_not_there_leaves_the_room_whole(world: Any, cwd: str) -> None:
    _shell_in(world, cwd)
    page = await (await world.browser().login()).get(P)
    assert page.status_code == 200
    assert "Nothing was said yet" in page.text
    assert ("no such file" in page.text) is (cwd == "/gone<b>")
    assert "gone<b>" not in page.text


async def test_looking_wakes_nothing_and_a_button_does(world: Any) -> None:
    browser = await world.browser().login()
    world.files.asleep.add("/sandboxes/main")  # it fell asleep since its state was looked at
    assert "Looking wakes nothing" in (await browser.get(f"{P}/files")).text
    world.sandboxes.views = [view(status="stopped", running=False)]
    calls = len(world.files.calls)
    assert "Looking wakes nothing" in (await browser.get(P)).text
    assert len(world.files.calls) == calls
    assert not world.sandboxes.called("start")
    world.files.asleep.clear()
    world.sandboxes.views = [view()]
    answer = await browser.submit(f"{P}/files/wake", {"roomId": "r1"}, **PIECE)
    assert "alert(1)" in answer.text
    assert len(world.sandboxes.called("start")) == 1


async def test_a_sandbox_that_does_not_answer_holds_up_nobody(world: Any, monkeypatch: Any) -> None:
    async def never(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(world.files, "glance", never)
    monkeypatch.setattr(room_files, "PATIENCE_SECONDS", 0.01)
    page = await (await world.browser().login()).get(P)
    assert "does not answer" in page.text
    assert "Nothing was said yet" in page.text


async def test_whoever_may_not_open_files_sees_none(world: Any) -> None:
    browser = await world.browser().login("runner")
    assert "data-shelf" not in (await browser.get(P)).text
    assert (await browser.get(f"{P}/files")).status_code == 403
    assert not world.files.calls
