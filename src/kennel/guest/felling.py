"""Owns the end of one tree of processes over time: TERM, a short grace, then KILL again and again.

Called by exec, typed, session and reaper. Invariant: it goes on until nothing is left below its roots or its owner
calls it done, quick at first and once a second later, so that a process stuck in the kernel costs little and still
dies when it can; and it never holds the loop for longer than a slice.
"""

from __future__ import annotations

from . import native, tree
from .loop import Loop, Timer
from .native import SIGCONT, SIGKILL, SIGTERM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container

GRACE = 0.25
_LOOK = 0.01
_FIRST, _LAST = 0.002, 1.0
_SLICE = 64
"""Processes signalled in one go, about 2 ms."""
_BOMB = 64
"""A tree of more than this gets no grace: each moment makes it larger."""


class Felling:
    """Kills everything below `roots` but `spare`; `emptied` is called once, when a look found nothing any more.

    `leader` leads a process group that wholly belongs to the tree: it is struck before anything is looked up.
    """

    _active = 0
    __slots__ = (
        "_done",
        "_emptied",
        "_grace",
        "_groups",
        "_killing",
        "_leader",
        "_loop",
        "_pause",
        "_roots",
        "_spare",
        "_timer",
        "_walk",
    )

    def __init__(
        self,
        loop: Loop,
        roots: tuple[int, ...],
        *,
        spare: Container[int] = (),
        leader: int = 0,
        groups: bool = True,
        emptied: Callable[[], None] | None = None,
    ) -> None:
        self._loop = loop
        self._roots = roots
        self._spare = spare
        self._leader = leader
        self._groups = groups
        self._emptied = emptied
        self._done = False
        self._grace = 0.0
        self._pause = _FIRST
        self._timer: Timer | None = None
        self._walk: tree.Walk | None = None
        self._killing = False
        Felling._active += 1
        native.first_in_line()

    def ask(self, grace: float = GRACE) -> None:
        """Lets the processes end by themselves for `grace` seconds."""
        if self._timer is not None or self._killing:
            return
        self._grace = grace
        if self._leader:
            tree.signal_group(self._leader, SIGTERM, SIGCONT)
        walk = tree.Walk(self._roots, (SIGTERM, SIGCONT), self._spare, self._groups, self._leader)
        if walk.step(_BOMB):
            self._timer = self._loop.later(_LOOK, self._look)
        else:
            self.kill()

    def _look(self) -> None:
        self._grace -= _LOOK
        if self._grace <= 0:
            self.kill()
        elif self._emptied is not None and not tree.top(self._roots, self._spare):
            self.done()
        else:
            self._timer = self._loop.later(_LOOK, self._look)

    def kill(self) -> None:
        """Starts to kill, now."""
        if self._killing:
            return
        self._killing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._leader:
            tree.signal_group(self._leader, SIGKILL)
        self._walk = tree.Walk(self._roots, (SIGKILL,), self._spare, self._groups, self._leader)
        self._pass()

    def _pass(self) -> None:
        walk = self._walk
        if walk is None:
            walk = self._walk = tree.Walk(self._roots, (SIGKILL,), self._spare, self._groups)
        if not walk.step(_SLICE):
            self._timer = self._loop.later(0, self._pass)
            return
        self._walk = None
        if not walk.found and self._emptied is not None:
            self.done()
            return
        self._timer = self._loop.later(self._pause, self._pass)
        self._pause = min(self._pause * 1.5, _LAST)

    def done(self) -> None:
        """Nothing is left; stops."""
        self._killing = True
        self._walk = None
        if self._timer is not None:
            self._timer.cancel()
        if not self._done:
            self._done = True
            Felling._active -= 1
            if not Felling._active:
                native.back_in_line()
        emptied, self._emptied = self._emptied, None
        if emptied is not None:
            emptied()
