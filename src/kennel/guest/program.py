"""Owns a program that nobody waits for: it runs until nothing of it is left, and its end is told to its record.

Made by process. Invariant: it is over when its main process and all that it started are gone, or a kill had its last
word; a signal or a kill reaches every process of it, also after the main one has ended.
"""

from __future__ import annotations

from . import launch
from .exec import Exec
from .felling import GRACE, Felling
from .folder import Folder
from .foreground import LAST_WORD, Limits
from .loop import Loop
from .pool import Pool
from .tree import signal_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .channel import Channel


class Program(Exec):
    """A command whose channel is a record (see process.Process)."""

    def __init__(
        self, loop: Loop, pool: Pool, record: Channel, job: launch.Job, limits: Limits, folder: Folder | None
    ) -> None:
        super().__init__(loop, pool, record, job, limits, folder)
        self.pid = 0

    def started(self, pid: int) -> None:
        """The main process runs."""
        self.pid = pid
        super().started(pid)

    def exited(self, status: int) -> None:
        """The main process ended; what it started may go on."""
        if self._status is None:
            self._status = status

    def signal(self, number: int) -> None:
        """A signal to every process of it."""
        if not self._over and 0 < number <= 64:
            signal_below((self._keeper.pid,), number)

    def stop(self, grace: float) -> None:
        """Ends it: a request, and after `grace` seconds the kill; at once with 0."""
        if self._over or self._keeper.owner is not self:
            return
        if self._felling is None:
            self._felling = Felling(self._loop, (self._keeper.pid,), leader=self._keeper.main)
        if grace > 0:
            self._felling.ask(grace)
        else:
            self._felling.kill()
        self._timers.append(self._loop.later(grace + LAST_WORD, self._finish))

    def _time_is_up(self) -> None:
        if not self._over:
            self._timed_out = True
            self.stop(GRACE)
