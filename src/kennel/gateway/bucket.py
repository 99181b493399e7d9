"""Owns a rate: tokens that come back over time; what exceeds it waits, it is not refused.

Called by the entrance, DNS and conversations. Invariant: never more than `burst` at once, never more than `rate` a
second in the long run.
"""

from __future__ import annotations


class Bucket:
    """`rate` per second with `burst` in hand. Times are seconds of a monotonic clock."""

    __slots__ = ("_burst", "_last", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._last = burst, now

    def take(self, now: float) -> bool:
        """Takes one token when there is one."""
        self._tokens = min(self._burst, self._tokens + (now - self._last) * self._rate)
        self._last = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def wait(self) -> float:
        """Seconds until there is one."""
        return max(0.0, (1 - self._tokens) / self._rate)
