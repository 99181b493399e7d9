"""Owns the end of one tree of processes over time: TERM, a short grace, then KILL again and again.

Called by exec and run. Invariant: it goes on until nothing is left below its roots or its owner calls it done, quick
at first and once a second later, so that a process stuck in the kernel costs little and still dies when it can.
"""

from __future__ import annotations

from . import tree
from .loop import Loop, Timer
from .native import SIGCONT, SIGKILL, SIGTERM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

GRACE = 0.25
_LOOK = 0.01
_FIRST, _LAST = 0.002, 1.0


class Felling:
    """Kills everything below `roots` but `spare`; `emptied` is called once, when a look found nothing any more."""

    __slots__ = ("_emptied", "_grace", "_killing", "_loop", "_pause", "_roots", "_spare", "_timer")

    def __init__(
        self,
        loop: Loop,
        roots: tuple[int, ...],
        spare: frozenset[int] = frozenset(),
        emptied: Callable[[], None] | None = None,
    ) -> None:
        self._loop = loop
        self._roots = roots
        self._spare = spare
        self._emptied = emptied
        self._grace = 0.0
        self._pause = _FIRST
        self._timer: Timer | None = None
        self._killing = False

    def ask(self, grace: float = GRACE) -> None:
        """Lets the processes end by themselves for `grace` seconds."""
        if self._timer is None and not self._killing:
            self._grace = grace
            tree.signal_below(self._roots, SIGTERM, self._spare)
            tree.signal_below(self._roots, SIGCONT, self._spare)
            self._timer = self._loop.later(_LOOK, self._look)

    def _look(self) -> None:
        self._grace -= _LOOK
        if self._grace <= 0:
            self.kill()
        elif self._emptied is not None and not tree.descendants(self._roots, self._spare):
            self.done()
        else:
            self._timer = self._loop.later(_LOOK, self._look)

    def kill(self) -> None:
        """Starts to kill, now."""
        if not self._killing:
            self._killing = True
            if self._timer is not None:
                self._timer.cancel()
            self._pass()

    def _pass(self) -> None:
        if tree.signal_below(self._roots, SIGKILL, self._spare) == 0 and self._emptied is not None:
            self.done()
            return
        self._timer = self._loop.later(self._pause, self._pass)
        self._pause = min(self._pause * 1.5, _LAST)

    def done(self) -> None:
        """Nothing is left; stops."""
        self._killing = True
        if self._timer is not None:
            self._timer.cancel()
        emptied, self._emptied = self._emptied, None
        if emptied is not None:
            emptied()
