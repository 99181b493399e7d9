"""Owns a wait's remaining time, spent in slices that one request may take.

Called by both halves of the SDK. Invariant: the slices of a wait add up to its timeout, so a lost connection costs one
slice and never the wait.
"""

from __future__ import annotations

import time

from kennel.sdk.execution import milliseconds

SLICE = 20.0
"""Seconds one waiting request may take: short enough for proxies that cut silent connections after 30."""


class Deadline:
    """`Deadline(seconds)`: runs from now."""

    def __init__(self, seconds: float) -> None:
        self.seconds = milliseconds(seconds) / 1000
        self._end = time.monotonic() + self.seconds

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return time.monotonic() >= self._end

    def slice(self) -> str:
        """Milliseconds that the next request may wait, at least one, as a query's text."""
        return str(max(1, round(min(SLICE, self._end - time.monotonic()) * 1000)))
