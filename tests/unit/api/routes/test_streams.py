from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kennel.control.streams import OutsideEvent

pytestmark = pytest.mark.anyio

STREAMS = "/v1/projects/default/streams"


async def test_append(world: Any) -> None:
    events = [{"type": "a"}, {"type": "b", "payload": {"x": [1, None]}, "idempotencyKey": "k", "offset": 3}]
    async with world.client() as http:
        answer = await http.post(f"{STREAMS}/my/stream", json={"events": events})
    assert answer.status_code == 201
    assert [event["offset"] for event in answer.json()["events"]] == [1, 2]
    sent = [OutsideEvent(type="a"), OutsideEvent(type="b", payload={"x": [1, None]}, idempotency_key="k", offset=3)]
    assert world.streams.calls == [("append", "default", "/my/stream", sent)]


@pytest.mark.parametrize(
    "events", [[], None, [{}], [{"type": ""}], [{"type": "a", "source": {"platform": True}}], [{"type": "a"}] * 501,
               [{"type": "a", "payload": []}], [{"type": "a", "offset": -1}]],
)  # fmt: skip
async def test_bad_batches_are_400(world: Any, events: Any) -> None:
    async with world.client() as http:
        answer = await http.post(f"{STREAMS}/x", json={"events": events})
    assert answer.status_code == 400
    assert not world.streams.calls


async def test_read(world: Any) -> None:
    async with world.client() as http:
        answer = await http.get(f"{STREAMS}/known?after=1&before=9&types=a,b,&limit=7")
        unknown = await http.get(f"{STREAMS}/unknown?follow=true")
        for query in ("after=-1", "limit=501", "limit=0", "follow=perhaps"):
            assert (await http.get(f"{STREAMS}/known?{query}")).status_code == 400
    assert [event["offset"] for event in answer.json()["events"]] == [2]
    assert world.streams.calls[0] == (
        "read", "default", "/known", 1, {"before": 9, "types": ["a", "b"], "limit": 7},
    )  # fmt: skip
    assert (unknown.status_code, unknown.json()["code"]) == (404, "STREAM_NOT_FOUND")


async def test_follow_gives_ids_and_says_when_it_fell_behind(world: Any) -> None:
    async with world.client() as http:
        answer = await http.get(f"{STREAMS}/known?follow=true", headers={"last-event-id": "1"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    first, gap, rest = answer.text.split("\n\n")
    assert first.startswith("id: 2\ndata: ")
    assert json.loads(first.partition("data: ")[2])["offset"] == 2
    assert gap.startswith("event: gap\ndata: ")
    assert rest == ""


async def test_a_follower_that_leaves_a_quiet_stream_is_let_go_at_once(world: Any) -> None:
    world.streams.quiet = True
    sent: list[dict[str, Any]] = []
    two = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await two.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)
        if len(sent) == 3:
            two.set()

    path = f"{STREAMS}/known"
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"follow=1",
        "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer admin")], "http_version": "1.1",
        "scheme": "http", "server": ("localhost", 80), "root_path": "",
    }  # fmt: skip
    before = asyncio.all_tasks()
    await asyncio.wait_for(world.app(scope, receive, send), 5)
    await asyncio.sleep(0)
    assert world.streams.closed.is_set()
    assert asyncio.all_tasks() == before
