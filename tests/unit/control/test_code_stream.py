"""Cells over a scripted guest: numbers, return, what they come to nothing for, what is noted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kennel.control.code_stream import CodeStreams
from kennel.control.followed import RING
from kennel.domain.code import CellCode
from kennel.domain.principal import SYSTEM
from kennel.wire.errors import KennelError, error

pytestmark = pytest.mark.anyio
END = {"executionCount": 1, "status": "ok", "timedOut": False, "interrupted": False, "durationMs": 1.0}


class World:
    """CodeStreams over one cell, with what was noted and asked."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.noted: list[dict[str, Any]] = []
        self.asked: list[Any] = []
        self.closed = False
        self.streams = CodeStreams(self)

    @asynccontextmanager
    async def guest(self, *_: Any) -> AsyncIterator[tuple[Any, Any]]:
        yield SimpleNamespace(guest=SimpleNamespace(interpreter=self)), SimpleNamespace(env={"OF": "sandbox"})

    async def run_default(self, language: str, env: dict[str, str], cell: CellCode) -> World:
        self.asked.append((language, env, cell))
        return self

    async def __aiter__(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        while True:
            said = await self.queue.get()
            if isinstance(said, KennelError):
                raise said
            yield said

    async def close(self) -> None:
        self.closed = True
        self.queue.put_nowait(error("OPERATION_INTERRUPTED", "left"))

    async def note(self, who: Any, project: str, path: str, type_: str, payload: dict[str, Any]) -> None:
        self.noted.append({"type": type_, **payload})

    async def ran_out_of_memory(self, *_: Any) -> bool:
        return False

    def say(self, *events: Any) -> None:
        for event in events:
            self.queue.put_nowait(event)

    async def open(self, linger: float = 0.0) -> Any:
        cell = CellCode("1 + 1", None, {"ONLY": "now"})
        return await self.streams.open(SYSTEM, "p", "/sandboxes/x", "python", cell, linger=linger)


async def test_events_are_numbered_and_the_end_is_noted_before_it_is_told() -> None:
    world = World()
    stream = await world.open()
    world.say(("start", {"contextId": "c"}), ("stdout", {"text": "x"}), ("end", END))
    got = [event async for event in stream.read()]
    assert [(event.sequence, event.kind) for event in got] == [(1, "start"), (2, "stdout"), (3, "end")]
    assert got[0].body == {"contextId": "c", "runId": stream.id}
    assert [note["type"] for note in world.noted] == ["sandbox/code-started", "sandbox/code-finished"]
    assert world.noted[1]["status"] == "ok"
    assert world.asked == [("python", {"OF": "sandbox"}, CellCode("1 + 1", None, {"ONLY": "now"}))]


async def test_a_cell_that_comes_to_nothing_says_why() -> None:
    world = World()
    stream = await world.open()
    world.say(("start", {}), error("CONTEXT_TERMINATED", "gone"))
    got = [event async for event in stream.read()]
    assert [event.kind for event in got] == ["start", "failure"]
    assert got[1].body["code"] == "CONTEXT_TERMINATED"
    assert world.noted[1]["error"] == "CONTEXT_TERMINATED"


async def test_a_reader_that_leaves_interrupts_it_unless_it_may_linger() -> None:
    for linger, closed in ((0.0, True), (30.0, False)):
        world = World()
        stream = await world.open(linger)
        world.say(("start", {}))
        events = stream.read()
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.sleep(0.05)
        assert world.closed is closed
        await world.streams.close()
        assert world.closed
        assert world.noted[1]["error"] == "INTERRUPTED"


async def test_a_return_gets_what_it_has_not_seen_or_is_told_that_it_is_gone() -> None:
    world = World()
    stream = await world.open(30.0)
    piece = "x" * (RING // 4)
    world.say(("start", {}), *[("stdout", {"text": f"{n}{piece}"}) for n in range(6)])
    events = stream.read()
    for _ in range(7):
        await anext(events)
    await events.aclose()
    found = world.streams.find("p", "/sandboxes/x", f"python/{stream.id}")
    world.say(("end", END))
    kept = [event async for event in found.read(6)]
    assert [(event.sequence, event.kind) for event in kept] == [(7, "stdout"), (8, "end")]
    again = [event async for event in found.read(1)]
    assert again[0].kind == "truncated"
    assert again[0].body["from"] == 2
    assert [event.sequence for event in again[1:]] == list(range(again[0].sequence + 1, 9))
    with pytest.raises(KennelError) as unknown:
        world.streams.find("p", "/sandboxes/x", f"javascript/{stream.id}")
    assert unknown.value.code == "COMMAND_NOT_FOUND"
    await world.streams.close()
