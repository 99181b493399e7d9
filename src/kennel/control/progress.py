"""Owns what long work on a sandbox's files says of itself while it goes on.

Called by workspaces. Invariant: work that ends within FIRST seconds says nothing, and longer work a handful of times,
each after twice the time of the last: a pack at its deadline of ten minutes leaves eight events, not six hundred.
Nothing is said once the work has ended, and what cannot be said costs the work nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

from kennel.wire.errors import KennelError

log = logging.getLogger("kennel.progress")

FIRST = 2.0

Phase = Literal["packing", "uploading", "fetching"]
Look = Callable[[], Awaitable[dict[str, Any]]]
Say = Callable[[dict[str, Any]], Awaitable[object]]


async def in_silence(_: dict[str, Any]) -> None:
    """For work on files that are no sandbox's."""


@contextlib.asynccontextmanager
async def told(phase: Phase, look: Look, say: Say, first: float = FIRST) -> AsyncIterator[None]:
    """Says how far the work inside the block is, as often as it is worth it; `look` finds that out."""
    over = asyncio.Event()
    teller = asyncio.create_task(_tell(phase, look, say, over, first))
    try:
        yield
    finally:
        # Not cancelled: an append that is on its way lands before the event that the work has ended.
        over.set()
        await teller


async def _tell(phase: Phase, look: Look, say: Say, over: asyncio.Event, pause: float) -> None:
    while True:
        try:
            await asyncio.wait_for(over.wait(), pause)
            return
        except TimeoutError:
            pause *= 2
        try:
            said = {"phase": phase, **await look()}
            if not over.is_set():
                await say(said)
        except KennelError as failure:
            log.info("nothing is said of the progress: %s", failure)


class Moved:
    """Bytes of layers on their way to or from the store."""

    def __init__(self, total: int | None = None) -> None:
        self.total = total
        self.bytes = 0

    def add(self, count: int) -> None:
        self.bytes += count

    async def look(self) -> dict[str, Any]:
        """What to say of it."""
        return {"bytes": self.bytes} | ({} if self.total is None else {"total": self.total})
