"""Followed commands over a scripted guest: numbers, replay, takeover, ends, what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kennel.control.exec_stream import ExecStreams
from kennel.control.followed import RING, StreamEvent
from kennel.domain.command import Chunk, Command, Outcome
from kennel.domain.principal import SYSTEM
from kennel.wire.errors import KennelError, error

pytestmark = pytest.mark.anyio


class Run:
    """A command that writes what it is told, then ends with `end`."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Chunk | None] = asyncio.Queue()
        self.end: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.killed = False
        self.count = 0

    def say(self, data: bytes, stream: Any = "stdout") -> None:
        self.queue.put_nowait(Chunk(self.count, stream, data))
        self.count += 1

    def finish(self, code: int = 0) -> None:
        self.queue.put_nowait(None)
        self.end.set_result(Outcome(b"", b"", code))

    def fail(self, failure: KennelError) -> None:
        self.queue.put_nowait(None)
        self.end.set_exception(failure)

    def waiting(self) -> Chunk | None:
        return None

    def __aiter__(self) -> Run:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await self.queue.get()
        if chunk is None:
            self.end.result()
            raise StopAsyncIteration
        return chunk

    async def begun(self) -> None: ...
    async def check(self) -> None: ...
    async def close_stdin(self) -> None: ...
    async def finished(self) -> Outcome:
        return await asyncio.shield(self.end)

    async def kill(self) -> None:
        self.killed = True


class World:
    """ExecStreams over one run, with what was noted."""

    def __init__(self) -> None:
        self.run = Run()
        self.noted: list[str] = []
        self.streams = ExecStreams(self, self)  # type: ignore[arg-type]

    @asynccontextmanager
    async def guest(self, *_: Any) -> AsyncIterator[tuple[Any, Any]]:
        async def run(command: Command) -> Run:
            return self.run

        yield SimpleNamespace(guest=SimpleNamespace(run=run)), SimpleNamespace(env={})

    async def point(self, *_: Any) -> None:
        return None

    async def ran_out_of_memory(self, *_: Any) -> bool:
        return False

    async def note(self, project: str, path: str, event: Any) -> None:
        self.noted.append(event.type)

    async def open(self, **more: Any) -> Any:
        return await self.streams.open(SYSTEM, "p", "/sandboxes/x", Command(command="x"), **more)


async def some(events: AsyncIterator[StreamEvent], count: int) -> list[StreamEvent]:
    return [await anext(events) for _ in range(count)]


async def test_numbers_rise_by_one_and_the_exit_is_last() -> None:
    world = World()
    stream = await world.open()
    world.run.say(b"a")
    world.run.say(b"b", "stderr")
    world.run.finish(3)
    got = [event async for event in stream.read()]
    assert [(event.sequence, event.kind) for event in got] == [(1, "start"), (2, "stdout"), (3, "stderr"), (4, "exit")]
    assert got[-1].body["exitCode"] == 3
    await asyncio.sleep(0)
    assert world.noted == ["sandbox/exec-started", "sandbox/exec-finished"]


async def test_a_lost_guest_is_an_error_never_a_success() -> None:
    world = World()
    stream = await world.open()
    world.run.say(b"a")
    world.run.fail(error("SANDBOX_LOST", "gone", admitted="yes"))
    got = [event async for event in stream.read()]
    assert [event.kind for event in got] == ["start", "stdout", "error"]
    assert got[-1].body["code"] == "SANDBOX_LOST"


async def test_a_reader_that_leaves_kills_it_unless_it_may_linger() -> None:
    for linger, killed in ((0.0, True), (30.0, False)):
        world = World()
        stream = await world.open(linger=linger)
        events = stream.read()
        await some(events, 1)
        await events.aclose()
        await asyncio.sleep(0.05)
        assert world.run.killed is killed
        await world.streams.close()
        assert world.run.killed


async def test_a_return_gets_exactly_what_it_has_not_seen() -> None:
    world = World()
    stream = await world.open(linger=30)
    for letter in b"abc":
        world.run.say(bytes([letter]))
    events = stream.read()
    await some(events, 3)
    await events.aclose()
    again = stream.read(after=2)
    world.run.finish()
    assert [(e.kind, e.data) async for e in again] == [("stdout", b"b"), ("stdout", b"c"), ("exit", b"")]


async def test_a_second_reader_takes_over() -> None:
    world = World()
    stream = await world.open(linger=30)
    first = stream.read()
    await some(first, 1)
    waiting = asyncio.ensure_future(anext(first))
    await asyncio.sleep(0)
    second = stream.read(after=1)
    taking = asyncio.ensure_future(anext(second))
    await asyncio.sleep(0)
    world.run.say(b"x")
    assert (await taking).data == b"x"
    with pytest.raises(KennelError) as caught:
        await waiting
    assert caught.value.code == "OPERATION_INTERRUPTED"
    await world.streams.close()


async def test_what_is_kept_is_bounded_and_the_gap_is_told() -> None:
    world = World()
    stream = await world.open(linger=30)
    for _ in range(20):
        world.run.say(bytes(128 * 1024))
    events = stream.read()
    await some(events, 21)
    await events.aclose()
    assert sum(len(event.data) for event, _ in stream._held) <= RING
    world.run.finish()
    got = [event async for event in stream.read(after=1)]
    assert got[0].kind == "truncated"
    assert got[1].sequence == got[0].sequence + 1
    assert got[-1].kind == "exit"


async def test_nothing_is_taken_from_the_guest_that_nobody_reads() -> None:
    world = World()
    stream = await world.open()
    for _ in range(5):
        world.run.say(b"x")
    events = stream.read()
    await some(events, 2)
    await asyncio.sleep(0.02)
    assert world.run.queue.qsize() == 4
    await events.aclose()


async def test_half_a_character_at_the_end_is_told_before_the_exit() -> None:
    world = World()
    stream = await world.open()
    world.run.say(b"a\xc3")
    world.run.say(b"b\xc3", "stderr")
    world.run.finish()
    got = [(event.kind, event.data) async for event in stream.read()]
    ends = [("stdout", b"\xc3"), ("stderr", b"\xc3"), ("exit", b"")]
    assert got == [("start", b""), ("stdout", b"a"), ("stderr", b"b"), *ends]
