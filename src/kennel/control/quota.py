"""Owns counting what happened in the last minute against a limit.

Called by the rooms' services, one window a room and kind. Invariant: within any sixty seconds no more than the limit
gets through, and no more times than the limit are remembered.
"""

from __future__ import annotations

import time
from collections import deque

from kennel.wire.errors import error

SECONDS = 60.0


class Quota:
    """`take` one; QUOTA_EXCEEDED says when the next one may come."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    def take(self, limit: int, what: str) -> None:
        """Counts one `what` now, at most `limit` a minute; 0 is no limit."""
        if not limit:
            self._times.clear()
            return
        now = time.monotonic()
        while self._times and (self._times[0] <= now - SECONDS or len(self._times) > limit):
            self._times.popleft()
        if len(self._times) >= limit:
            wait = self._times[0] + SECONDS - now
            message = f"this room has had its {limit} {what} of this minute"
            raise error("QUOTA_EXCEEDED", message, admitted="no", retry_after_ms=max(1, round(wait * 1000)))
        self._times.append(now)
