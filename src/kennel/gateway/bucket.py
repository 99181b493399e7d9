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


class Meter:
    """Bytes a second, both ways together: what went over already is paid by resting, so nothing is cut or refused."""

    __slots__ = ("_debt", "_last", "_rate")

    def __init__(self, rate: float, now: float) -> None:
        self._rate, self._last, self._debt = rate, now, 0.0

    def charge(self, size: int, now: float) -> float:
        """Seconds to rest after so many bytes; a tenth of a second's worth may come at once."""
        self._debt = max(-self._rate / 10, self._debt - (now - self._last) * self._rate) + size
        self._last = now
        return max(0.0, self._debt / self._rate)
