"""Owns that what a page follows ends with its session: a stream or socket is cut off soon after a logout or revocation.

Called by the console's door for event streams and sockets, which outlast the look that let them in. Invariant: within
PAUSE_SECONDS and the time of one look nothing more is sent to whoever may look no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Message, Receive

PAUSE_SECONDS = 1.0


class Leash:
    """A `receive` that says the other side left, once `holds` says that it may stay no longer; to be closed."""

    def __init__(self, receive: Receive, holds: Callable[[], Awaitable[bool]], parting: Message) -> None:
        self._receive, self._holds, self._parting = receive, holds, parting
        self._pending: asyncio.Future[Any] | None = None
        self.cut = False

    async def __call__(self) -> Message:
        while not self.cut:
            if self._pending is None:
                self._pending = asyncio.ensure_future(self._receive())
            await asyncio.wait({self._pending}, timeout=PAUSE_SECONDS)
            if self._pending.done():
                message: Message = self._pending.result()
                self._pending = None
                return message
            self.cut = not await self._holds()
        return self._parting

    async def close(self) -> None:
        """Lets go of what it waits for."""
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.gather(self._pending, return_exceptions=True)
