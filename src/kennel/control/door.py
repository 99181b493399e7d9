"""Owns admission to one live sandbox: tickets for work, and the one way to close the door.

Called by every operation on a sandbox. Invariant: between the moment the door closes and the moment it opens again no
ticket is out; an operation that finds it closed waits, and then wakes the pet; a count of zero is seen by one closer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class Door:
    """One per sandbox, on one event loop, so that the counter needs no lock of its own."""

    def __init__(self) -> None:
        self.tickets = 0
        self.vigils = 0
        self.last_activity = time.monotonic()
        self._lock = asyncio.Lock()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def closed(self) -> bool:
        """Whether somebody is starting, stopping or destroying the sandbox."""
        return self._lock.locked()

    def touch(self) -> None:
        """Counts as activity now."""
        self.last_activity = time.monotonic()

    @contextmanager
    def ticket(self) -> Iterator[None]:
        """Admits one operation; only while the door is open (checked in the same turn of the loop by the caller)."""
        self.tickets += 1
        self._empty.clear()
        self.touch()
        try:
            yield
        finally:
            self.tickets -= 1
            self.touch()
            if self.tickets == 0:
                self._empty.set()

    @contextmanager
    def vigil(self) -> Iterator[None]:
        """Keeps the sandbox from being idle, as a ticket does, but holds up nobody who closes the door."""
        self.vigils += 1
        try:
            yield
        finally:
            self.vigils -= 1
            self.touch()

    @asynccontextmanager
    async def shut(self) -> AsyncIterator[None]:
        """Closes the door for the length of the block; one closer at a time."""
        async with self._lock:
            yield

    async def drained(self, seconds: float) -> bool:
        """Whether the tickets that were out when the door closed came back within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True
