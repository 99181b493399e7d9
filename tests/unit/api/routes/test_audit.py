from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

PROJECT = "/v1/projects/default"
LINES = {"accept": "application/x-ndjson"}


async def test_streams_are_listed_a_page_at_a_time(world: Any) -> None:
    async with world.client("reader") as http:
        first = (await http.get(f"{PROJECT}/streams?limit=2")).json()
        second = (await http.get(f"{PROJECT}/streams?limit=2&cursor={first['cursor']}")).json()
        below = (await http.get(f"{PROJECT}/streams?prefix=/known/below")).json()
    assert first == {"streams": [{"path": "/"}, {"path": "/known"}], "cursor": "/known"}
    assert second == {"streams": [{"path": "/known/below"}], "cursor": None}
    assert below["streams"] == [{"path": "/known/below"}]


async def test_a_verification_names_what_does_not_fit(world: Any) -> None:
    async with world.client("reader") as http:
        answer = await http.get(f"{PROJECT}/stream-verification/known")
        unknown = await http.get(f"{PROJECT}/stream-verification/unknown")
    found = answer.json()
    assert (found["path"], found["events"], found["holds"]) == ("/known", 2, False)
    assert [(fault["path"], fault["offset"]) for fault in found["faults"]] == [("/known", 2)]
    assert (unknown.status_code, unknown.json()["code"]) == (404, "STREAM_NOT_FOUND")


async def test_an_export_is_one_event_a_line(world: Any) -> None:
    async with world.client("reader") as http:
        answer = await http.get(f"{PROJECT}/streams/known", headers=LINES)
        unknown = await http.get(f"{PROJECT}/streams/unknown", headers=LINES)
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.text.endswith("\n")
    assert [json.loads(line)["offset"] for line in answer.text.splitlines()] == [1, 2]
    assert (unknown.status_code, unknown.json()["code"]) == (404, "STREAM_NOT_FOUND")


async def test_a_wait_is_for_the_first_event_that_fits(world: Any) -> None:
    async with world.client("reader") as http:
        found = await http.get(f"{PROJECT}/streams/known?after=1&types=note,x&waitMs=2500")
        missed = await http.get(f"{PROJECT}/streams/known?after=2&waitMs=1")
        unknown = await http.get(f"{PROJECT}/streams/unknown?waitMs=1")
        assert (await http.get(f"{PROJECT}/streams/known?waitMs=600001")).status_code == 400
    assert [event["offset"] for event in found.json()["events"]] == [2]
    assert world.streams.calls[0] == ("wait", "default", "/known", 1, ["note", "x"], 2.5)
    assert (missed.status_code, missed.json()["code"]) == (408, "WAIT_TIMEOUT")
    assert unknown.status_code == 404


@pytest.mark.parametrize("path", ["/streams", "/stream-verification/known", "/streams/known"])
async def test_reading_takes_the_scope(world: Any, path: str) -> None:
    async with world.client("runner") as http:
        assert (await http.get(PROJECT + path, headers=LINES)).status_code == 403
    async with world.client("other") as http:
        assert (await http.get(PROJECT + path, headers=LINES)).status_code == 404
    assert not world.streams.calls
