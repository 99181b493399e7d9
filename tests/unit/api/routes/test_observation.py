from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

MAIN = "/v1/projects/default/sandboxes/main"


async def test_the_projection_now_and_after_an_offset(world: Any) -> None:
    async with world.client("reader") as http:
        now = await http.get(f"{MAIN}/projection")
        later = await http.get(f"{MAIN}/projection?waitUntil=2&timeoutMs=1500")
        never = await http.get(f"{MAIN}/projection?waitUntil=4&timeoutMs=1")
    assert now.status_code == later.status_code == 200
    assert now.json()["offset"] == 3
    assert (now.json()["state"]["status"], now.json()["state"]["lastBackupId"]) == ("running", None)
    assert (never.status_code, never.json()["code"]) == (408, "WAIT_TIMEOUT")
    assert world.observation.calls[:2] == [
        ("snapshot", "default", "/sandboxes/main"), ("wait", "default", "/sandboxes/main", 2, 1.5),
    ]  # fmt: skip
    assert not world.sandboxes.calls


@pytest.mark.parametrize("query", ["waitUntil=-1", "waitUntil=x", "waitUntil=1&timeoutMs=0", "timeoutMs=600001"])
async def test_bad_waits_are_400(world: Any, query: str) -> None:
    async with world.client() as http:
        answer = await http.get(f"{MAIN}/projection?{query}")
    assert answer.status_code == 400
    assert not world.observation.calls


async def test_live_is_a_snapshot_then_diffs_then_a_gap(world: Any) -> None:
    async with world.client("reader") as http:
        answer = await http.get(f"{MAIN}/live")
    assert answer.headers["content-type"].startswith("text/event-stream")
    messages = [dict(line.split(": ", 1) for line in m.split("\n")) for m in answer.text.strip().split("\n\n")]
    assert [(m["event"], m["id"]) for m in messages] == [("snapshot", "3"), ("diff", "4"), ("gap", "4")]
    diff = json.loads(messages[1]["data"])
    assert (diff["previous"], diff["revision"]) == (3, 4)
    assert diff["operations"] == [{"op": "replace", "path": "/running", "value": False}]
    assert world.observation.closed.is_set()


async def test_an_unknown_sandbox_is_404_before_anything_is_streamed(world: Any) -> None:
    async with world.client() as http:
        for what in ("projection", "projection?waitUntil=1", "live"):
            answer = await http.get(f"/v1/projects/default/sandboxes/typo/{what}")
            assert (answer.status_code, answer.json()["code"]) == (404, "SANDBOX_NOT_FOUND")


async def test_who_may_look(world: Any) -> None:
    async with world.client("runner") as http:
        assert (await http.get(f"{MAIN}/live")).status_code == 403
    async with world.client("other") as http:
        assert (await http.get(f"{MAIN}/projection")).json()["code"] == "PROJECT_NOT_FOUND"
    assert not world.observation.calls


async def test_a_watcher_that_leaves_is_let_go_at_once(world: Any) -> None:
    world.observation.quiet = True
    sent: list[dict[str, Any]] = []
    told = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await told.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)
        if len(sent) == 3:
            told.set()

    scope = {
        "type": "http", "method": "GET", "path": f"{MAIN}/live", "raw_path": f"{MAIN}/live".encode(),
        "query_string": b"", "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer admin")],
        "http_version": "1.1", "scheme": "http", "server": ("localhost", 80), "root_path": "",
    }  # fmt: skip
    before = asyncio.all_tasks()
    await asyncio.wait_for(world.app(scope, receive, send), 5)
    await asyncio.sleep(0)
    assert world.observation.closed.is_set()
    assert asyncio.all_tasks() == before
