"""Owns the guest's one thread: descriptors to watch, timers, work for the end of the tick.

Called by every part of the guest. Invariant: no callback can end the loop; what one raises is written to standard
error (a bounded number of times) and its descriptor is let go.
"""

from __future__ import annotations

import os
import select
import sys
from _heapq import heappop, heappush
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
HANGUP = select.EPOLLHUP | select.EPOLLERR
_COMPLAINTS = 50
_BATCH = 256
_CANCELLED = 64


class Timer:
    """Something to do later; `cancel` before it happens."""

    __slots__ = ("_act", "_loop", "_number", "at")
    _count = 0

    def __init__(self, loop: Loop, at: float, act: Callable[[], None]) -> None:
        Timer._count += 1
        self.at = at
        self._loop = loop
        self._act: Callable[[], None] | None = act
        self._number = Timer._count

    def __lt__(self, other: Timer) -> bool:
        return (self.at, self._number) < (other.at, other._number)

    def cancel(self) -> None:
        """It will not happen; harmless when it already has."""
        if self._act is not None:
            self._act = None
            self._loop.cancelled()

    @property
    def live(self) -> bool:
        """Still to happen."""
        return self._act is not None

    def fire(self) -> None:
        """Does it, once."""
        act, self._act = self._act, None
        if act is not None:
            act()


class Loop:
    """One epoll, one heap of timers."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._timers: list[Timer] = []
        self._soon: list[Callable[[], None]] = []
        self._closing: list[int] = []
        self._cancelled = 0
        self._complaints = 0
        self.running = True

    def watch(self, fd: int, events: int, handler: Callable[[int], None]) -> None:
        """Calls `handler(events)` while any of `events` (or a hang-up) is true of `fd`."""
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        """Watches for other events from now on."""
        self._epoll.modify(fd, events)

    def forget(self, fd: int) -> None:
        """Stops watching; also in the middle of a batch of events."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def close(self, fd: int) -> None:
        """Stops watching and closes at the end of the tick, so that no event of this batch meets a reused number."""
        self.forget(fd)
        self._closing.append(fd)

    def later(self, seconds: float, act: Callable[[], None]) -> Timer:
        """Does it after `seconds`."""
        timer = Timer(self, monotonic() + seconds, act)
        heappush(self._timers, timer)
        return timer

    def cancelled(self) -> None:
        """A timer was; a thousand short calls with long limits must not leave a thousand entries."""
        self._cancelled += 1
        if self._cancelled > _CANCELLED and self._cancelled > len(self._timers) // 2:
            self._timers = sorted(timer for timer in self._timers if timer.live)
            self._cancelled = 0

    def soon(self, act: Callable[[], None]) -> None:
        """Does it at the end of this tick."""
        self._soon.append(act)

    def run(self) -> None:
        """Until `running` is false."""
        while self.running:
            self.tick()

    def tick(self) -> None:
        """One round: wait, handle events, timers, and what was put off."""
        for fd, events in self._epoll.poll(self._patience(), _BATCH):
            handler = self._handlers.get(fd)
            if handler is not None and not self._guarded(handler, events):
                self.forget(fd)
        now = monotonic()
        while self._timers and self._timers[0].at <= now:
            self._guarded(heappop(self._timers).fire)
        while self._soon:
            batch, self._soon = self._soon, []
            for act in batch:
                self._guarded(act)
        if self._closing:
            batch_fds, self._closing = self._closing, []
            for fd in batch_fds:
                self._guarded(os.close, fd)

    def _patience(self) -> float:
        if self._soon:
            return 0.0
        return max(0.0, self._timers[0].at - monotonic()) if self._timers else -1

    def _guarded(self, act: Callable[..., Any], *words: int) -> bool:
        try:
            act(*words)
        except Exception as problem:  # noqa: BLE001  PID 1 outlives every mistake, its own included
            self._complain(problem)
            return False
        return True

    def _complain(self, problem: Exception) -> None:
        self._complaints += 1
        if self._complaints > _COMPLAINTS:
            return
        trace, where = problem.__traceback__, []
        while trace is not None:
            where.append(f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}")
            trace = trace.tb_next
        line = f"guest: {type(problem).__name__}: {problem} at {' > '.join(where)}\n"
        try:
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, line.encode("utf-8", "replace"))
        except (OSError, ValueError):
            self._complaints = _COMPLAINTS
