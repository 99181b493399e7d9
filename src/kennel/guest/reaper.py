"""Owns waitpid in PID 1: buries subreapers and strays, and kills what a killed subreaper left behind.

Called by service (wiring) and by the kernel (SIGCHLD). Invariant: PID 1's only lasting children are subreapers; any
other is a stray of a command that killed its own subreaper, and is killed with all below it.
"""

from __future__ import annotations

import os

from . import native
from .felling import Felling
from .loop import READ, Loop
from .pool import Keeper, Pool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .pool import Owner


class Reaper:
    """The one place that waits."""

    def __init__(self, loop: Loop, pool: Pool) -> None:
        self._loop = loop
        self._pool = pool
        self._bereaved: dict[int, Owner] = {}
        self._mourners: list[tuple[Owner, int]] = []
        self._hunt: Felling | None = None
        woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._woken = woken
        native.on_child(wake, lambda number, where: None)
        loop.watch(woken, READ, self._child)

    def _child(self, events: int) -> None:
        os.read(self._woken, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self._resume(pid)
            else:
                self._bury(pid, status)

    def _resume(self, pid: int) -> None:
        """A subreaper was stopped by a program of the sandbox; nobody but us will let it go on."""
        if pid in self._pool.keepers:
            os.kill(pid, native.SIGCONT)

    def _bury(self, pid: int, status: int) -> None:
        keeper = self._pool.keepers.pop(pid, None)
        if keeper is not None:
            keeper.heard(READ)
            self._bereave(keeper)
            return
        owner = self._bereaved.pop(pid, None)
        if owner is not None:
            owner.exited(status)

    def _bereave(self, keeper: Keeper) -> None:
        """A subreaper is gone; when it had work, its orphans are ours now."""
        owner, keeper.owner = keeper.owner, None
        if owner is None:
            return
        if keeper.main:
            self._bereaved[keeper.main] = owner
        self._mourners.append((owner, keeper.main))
        if self._hunt is None:
            self._hunt = Felling(self._loop, (os.getpid(),), spare=self._pool.keepers, emptied=self._hunted)
            self._hunt.kill()

    def _hunted(self) -> None:
        """No stray is left: every command of a killed subreaper has ended, and its status has passed here."""
        self._hunt = None
        mourners, self._mourners = self._mourners, []
        for owner, main in mourners:
            self._bereaved.pop(main, None)
            owner.lost()
