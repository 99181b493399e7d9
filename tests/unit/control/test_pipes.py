"""Pipes to a thread: bytes both ways, a far end that fails or stops, and no descriptor left behind."""

from __future__ import annotations

import asyncio
import os

import pytest

from kennel.control.pipes import Pipe
from kennel.wire.errors import KennelError, error

pytestmark = pytest.mark.anyio


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def read_all(far: int) -> int:
    total = 0
    while piece := await asyncio.to_thread(os.read, far, 1 << 16):
        total += len(piece)
    return total


async def write_on(pipe: Pipe) -> None:
    while True:
        await pipe.write(bytes(100_000))


async def test_what_is_written_arrives_and_the_end_says_what_came_of_it() -> None:
    before = descriptors()
    pipe = Pipe(read_all, reads=False)
    for _ in range(40):
        await pipe.write(bytes(100_000))
    assert await pipe.end() == 4_000_000
    assert descriptors() == before


async def test_a_full_store_is_what_the_writer_hears() -> None:
    async def full(far: int) -> None:
        await asyncio.to_thread(os.read, far, 10)
        raise error("NO_SPACE", "full")

    before = descriptors()
    pipe = Pipe(full, reads=False)
    with pytest.raises(KennelError) as caught:
        await write_on(pipe)
    assert caught.value.code == "NO_SPACE"
    pipe.close()
    assert descriptors() == before


async def test_a_reader_gets_all_and_then_the_failure() -> None:
    async def damaged(far: int) -> None:
        await asyncio.to_thread(os.write, far, b"x" * 1000)
        raise error("BLOB_CORRUPT", "damaged")

    pipe = Pipe(damaged, reads=True)
    pieces = pipe.pieces()
    assert await anext(pieces) == b"x" * 1000
    with pytest.raises(KennelError):
        await anext(pieces)
    pipe.close()


async def test_what_others_send_after_the_work_is_done_arrives_too() -> None:
    before, handed = descriptors(), []

    async def hand_over(far: int) -> None:
        handed.append(os.dup(far))

    def send() -> None:
        os.write(handed[0], b"late")
        os.close(handed[0])

    pipe = Pipe(hand_over, reads=True)
    await pipe.work
    asyncio.get_running_loop().call_later(0.05, send)
    assert [piece async for piece in pipe.pieces()] == [b"late"]
    pipe.close()
    assert descriptors() == before


async def test_one_that_gives_up_leaves_the_far_end_to_close_by_itself() -> None:
    before = descriptors()
    pipe = Pipe(read_all, reads=False)
    writing = asyncio.create_task(pipe.write(bytes(10)))
    await writing
    pipe.close()
    assert await pipe.work == 10
    assert descriptors() == before
