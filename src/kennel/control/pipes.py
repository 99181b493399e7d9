"""Owns pipes between the event loop and whoever reads or writes their other end elsewhere: blobs and trees.

Called by backups and snapshots. Invariant: neither end is closed while anybody may still use it: the loop's end first,
the other one when the work on it has ended; neither side holds more than a pipe's worth.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
PIECE = 256 * 1024


class Pipe:
    """One pipe; `work` gets the far end's descriptor and runs until it is through with it."""

    def __init__(self, work: Callable[[int], Awaitable[T]], *, reads: bool) -> None:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        far, self._near = (writing, reading) if reads else (reading, writing)
        os.set_blocking(self._near, False)
        self._reads = reads
        self.work: asyncio.Task[Any] = asyncio.get_running_loop().create_task(_through(work, far), name="blob")
        # Whoever gave up before its end does not ask what came of it.
        self.work.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def write(self, data: bytes) -> None:
        """Sends bytes; what the far end failed with."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._near, view) :]
            except BlockingIOError:
                await self._ready()
            except BrokenPipeError:
                await self.work
                raise
            if self.work.done():
                await self.work

    async def read(self) -> bytes:
        """The next bytes; none at the end."""
        while True:
            try:
                return os.read(self._near, PIECE)
            except BlockingIOError:
                await self._ready()

    async def pieces(self) -> AsyncIterator[bytes]:
        """All that the far end sends, and then what it failed with."""
        while piece := await self.read():
            yield piece
        await self.work

    async def _ready(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        add, remove = (loop.add_reader, loop.remove_reader) if self._reads else (loop.add_writer, loop.remove_writer)
        add(self._near, _tell, ready)
        try:
            # Work that is done may have given the far end to others, who still hold it.
            waiting = [ready] if self.work.done() else [ready, self.work]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            remove(self._near)
            ready.cancel()

    async def end(self) -> Any:
        """Closes the near end; what came of the work."""
        self.close()
        return await self.work

    def close(self) -> None:
        """Closes the near end; the far one follows by itself."""
        if self._near >= 0:
            os.close(self._near)
            self._near = -1


def _tell(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _through(work: Callable[[int], Awaitable[T]], far: int) -> T:
    try:
        return await work(far)
    finally:
        os.close(far)
