"""Owns a waiting line: places are taken at once, without an await, and served in that order.

Called by rooms, whose callers have to look at the log between their arrival and their turn; an `asyncio.Lock` would
order them by when that look ended. Invariant: exactly the first in the line has its turn.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Line:
    """Await the place that `take` gives to have a turn; `leave` in any case."""

    def __init__(self) -> None:
        self._places: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        """Those who have their turn or wait for it."""
        return len(self._places)

    def ahead(self, place: asyncio.Future[None]) -> int:
        """How many places are before this one."""
        return self._places.index(place)

    def take(self) -> asyncio.Future[None]:
        """A place at the end of the line; done when its turn has come."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._places.append(place)
        self._serve()
        return place

    def leave(self, place: asyncio.Future[None]) -> None:
        """Gives a place up, served or not; once."""
        self._places.remove(place)
        self._serve()

    def _serve(self) -> None:
        # A first place that is done either has its turn or was cancelled and is about to leave.
        if self._places and not self._places[0].done():
            self._places[0].set_result(None)
