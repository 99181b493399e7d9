"""Owns one cell on its way through a context: what it has said, its limit in time, its one end.

Made by the hub for every run. Invariant: lines are kept in order and within the budget until the caller has taken
them, so that a slow caller never holds a kernel up; the last line says how it ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Any

from .budget import Budget, encoded


class Failure(Exception):
    """A call that comes to nothing, with a code of the wire's table."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code, self.message, self.details = code, message, details

    def line(self) -> bytes:
        """As the last line of an answer."""
        told: dict[str, Any] = {"event": "failure", "code": self.code, "message": self.message[:2000]}
        return encoded(told | ({"details": self.details} if self.details else {}))


class Cell:
    """One run of code; `timeout` in seconds counts from its turn, `env` are variables until its end."""

    def __init__(self, code: str, timeout: float | None, env: dict[str, str] | None = None) -> None:
        self.code = code
        self.env = env or {}
        self.timeout = timeout
        self.timed_out = False
        self.interrupted = False
        self.abandoned = False
        self.failed = False
        self.began = 0.0
        self._budget = Budget()
        self._lines: deque[bytes] = deque()
        self._over = False
        self._changed = asyncio.Event()

    def start(self, context: str, count: int) -> None:
        """Its turn has come."""
        self.began = monotonic()
        self._add(encoded({"event": "start", "contextId": context, "executionCount": count}))

    def tell(self, event: dict[str, Any]) -> None:
        """Something it says; text is cut into pieces, a result left out when there is no room for it."""
        kind = event["event"]
        if kind in ("stdout", "stderr"):
            for line in self._budget.text(kind, event["text"]):
                self._add(line)
        elif kind == "result":
            if line := self._budget.result(event):
                self._add(line)
        else:
            self.failed = self.failed or kind == "error"
            self._add(encoded(event))

    def end(self, count: int) -> None:
        """It has ended, whether by itself or not."""
        told = {
            "event": "end",
            "executionCount": count,
            "status": "error" if self.failed else "ok",
            "timedOut": self.timed_out,
            "interrupted": self.interrupted,
            "droppedBytes": self._budget.dropped,
            "durationMs": round((monotonic() - self.began) * 1000, 3),
        }
        self._last(encoded(told))

    def fail(self, failure: Failure) -> None:
        """It came to nothing, or its context died."""
        self._last(failure.line())

    def _last(self, line: bytes) -> None:
        if not self._over:
            self._add(line)
            self._over = True

    def _add(self, line: bytes) -> None:
        if not self.abandoned and not self._over:
            self._lines.append(line)
            self._changed.set()

    def abandon(self) -> None:
        """Nobody listens any more."""
        self.abandoned = True
        self._lines.clear()
        self._changed.set()

    async def next(self) -> bytes | None:
        """The next line; None after the last."""
        while not self._lines:
            if self._over or self.abandoned:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._lines.popleft()
