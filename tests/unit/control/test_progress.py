"""What long work says of itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kennel.control.progress import Moved, told
from kennel.wire.errors import error

pytestmark = pytest.mark.anyio


class Log:
    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.spoke = asyncio.Event()

    async def __call__(self, body: dict[str, Any]) -> None:
        self.said.append(body)
        self.spoke.set()


async def test_short_work_says_nothing() -> None:
    log, moved = Log(), Moved(10)
    async with told("uploading", moved.look, log):
        moved.add(10)
    assert log.said == []


async def test_long_work_says_how_far_it_is_ever_more_rarely() -> None:
    log, moved = Log(), Moved(100)
    async with told("uploading", moved.look, log, 0.01):
        for _ in range(20):
            moved.add(5)
            await asyncio.sleep(0.01)
    counts = [body["bytes"] for body in log.said]
    assert 1 <= len(log.said) <= 4, "after 10, 30, 70 and 150 ms at the earliest"
    assert counts == sorted(counts)
    assert {(body["phase"], body["total"]) for body in log.said} == {("uploading", 100)}


async def test_nothing_is_said_after_the_work() -> None:
    log, looking, seen = Log(), asyncio.Event(), asyncio.Event()

    async def look() -> dict[str, Any]:
        looking.set()
        await seen.wait()
        return {"bytes": 1}

    async with told("packing", look, log, 0.01):
        await looking.wait()
        asyncio.get_running_loop().call_later(0.02, seen.set)
    assert log.said == []


async def test_what_cannot_be_told_costs_the_work_nothing() -> None:
    async def look() -> dict[str, Any]:
        raise error("NODE_UNAVAILABLE", "node is away")

    async with told("packing", look, Log(), 0.001):
        await asyncio.sleep(0.02)


async def test_the_works_own_failure_is_what_is_raised() -> None:
    log = Log()

    async def work() -> None:
        async with told("fetching", Moved().look, log, 0.001):
            await log.spoke.wait()
            raise ValueError("full")

    with pytest.raises(ValueError, match="full"):
        await work()
    assert log.said[0] == {"phase": "fetching", "bytes": 0}
