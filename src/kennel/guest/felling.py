"""Owns the end of one tree of processes over time: TERM, a short grace, then KILL again and again.

Called by exec and session. Invariant: it goes on until its owner says that the subreaper is idle or lost, quick at
first and once a second later, so that a process stuck in the kernel costs nothing and still dies when it can.
"""

from __future__ import annotations

from . import tree
from .loop import Loop, Timer
from .native import SIGCONT, SIGKILL, SIGTERM

GRACE = 0.25
_FIRST, _LAST = 0.002, 1.0


class Felling:
    """Kills everything below `root` but the subtrees of `spare`."""

    __slots__ = ("_loop", "_pause", "_root", "_spare", "_timer", "killing")

    def __init__(self, loop: Loop, root: int, spare: frozenset[int] = frozenset()) -> None:
        self._loop = loop
        self._root = root
        self._spare = spare
        self._pause = _FIRST
        self._timer: Timer | None = None
        self.killing = False

    def ask(self, grace: float = GRACE) -> None:
        """Lets the processes end by themselves for `grace` seconds."""
        if self._timer is None and not self.killing:
            tree.signal_below(self._root, SIGTERM, self._spare)
            tree.signal_below(self._root, SIGCONT, self._spare)
            self._timer = self._loop.later(grace, self.kill)

    def kill(self) -> None:
        """Starts to kill, now."""
        if self.killing:
            return
        self.killing = True
        if self._timer is not None:
            self._timer.cancel()
        self._pass()

    def _pass(self) -> None:
        tree.signal_below(self._root, SIGKILL, self._spare)
        self._timer = self._loop.later(self._pause, self._pass)
        self._pause = min(self._pause * 1.5, _LAST)

    def done(self) -> None:
        """Nothing is left; stops."""
        self.killing = True
        if self._timer is not None:
            self._timer.cancel()
