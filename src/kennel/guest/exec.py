"""Owns one command with a process of its own: its pipes, its subreaper, its end.

Begun by the `exec` operation. Invariant: it ends exactly once: at the end of the main process, whatever still holds its
pipes; or when its time ran out, its peer closed it or went away, and its whole tree is dead (or LAST_WORD has passed).
"""

from __future__ import annotations

import os

from . import launch, subreaper
from .accounts import Account, Accounts
from .felling import Felling
from .folder import Folder
from .foreground import LAST_WORD, Foreground, Limits
from .loop import Loop
from .pool import Keeper, Pool
from .refusal import Refusal, cwd_refusal, spawn_refusal
from .tree import signal_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .channel import Channel


class Pipes:
    """The ends of a command's three pipes; `near` goes to whoever attaches them."""

    __slots__ = ("far", "near")

    def __init__(self, stdin: bool) -> None:
        self.near: list[int] = []
        self.far: list[int] = []
        try:
            if stdin:
                read, write = os.pipe()
                self.far.append(read)
                self.near.append(write)
            else:
                self.far.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
                self.near.append(-1)
            for _ in range(2):
                read, write = os.pipe()
                self.near.append(read)
                self.far.append(write)
        except OSError as problem:
            self.close()
            raise spawn_refusal(problem) from None

    def close_far(self) -> None:
        """The command has its own copies now."""
        for fd in self.far:
            os.close(fd)
        self.far.clear()

    def close(self) -> None:
        """Nothing was started."""
        self.close_far()
        for fd in self.near:
            if fd >= 0:
                os.close(fd)
        self.near.clear()


class Exec(Foreground):
    """A command in progress, under a subreaper of its own."""

    def __init__(
        self, loop: Loop, pool: Pool, channel: Channel, job: launch.Job, limits: Limits, folder: Folder | None = None
    ) -> None:
        super().__init__(loop, channel, limits)
        self._folder = folder
        self._cwd = job[3].decode("utf-8", "replace")
        self._felling: Felling | None = None
        pipes = Pipes(limits.stdin)
        try:
            self._keeper: Keeper = pool.run(job, pipes.far, self)
        except BaseException:
            pipes.close()
            raise
        pipes.close_far()
        stdin, stdout, stderr = pipes.near
        self._attach(stdin, stdout, stderr)
        for output in self._outputs:
            output.start()

    def started(self, pid: int) -> None:
        """The command runs."""
        self._channel.opened()

    def failed(self, stage: int, number: int) -> None:
        """It could not be started."""
        self._channel.refuse(failure(stage, number, self._cwd))
        self._clear()

    def exited(self, status: int) -> None:
        """The main process ended; what it left in the pipes is the rest of its output."""
        if self._status is None:
            self._status = status
        self._source.close()
        if self._felling is None:
            self._finish()

    def idle(self) -> None:
        """Nothing of it is left."""
        if self._felling is not None:
            self._felling.done()
        self._finish()

    def lost(self) -> None:
        """Its subreaper was killed, and everything below it after that."""
        if self._status is None:
            self._status = 9
        self.idle()

    def signal(self, number: int) -> None:
        """A signal to every process of the command."""
        if self._status is None and 0 < number <= 64:
            signal_below((self._keeper.pid,), number)

    def _clear(self) -> None:
        super()._clear()
        if self._folder is not None:
            self._folder.clear()

    def _fell(self, grace: bool) -> None:
        if self._felling is None and self._keeper.owner is self:
            self._felling = Felling(self._loop, (self._keeper.pid,), leader=self._keeper.main)
            self._timers.append(self._loop.later(LAST_WORD, self._finish))
        if self._felling is not None:
            if grace:
                self._felling.ask()
            else:
                self._felling.kill()


def failure(stage: int, number: int, cwd: str) -> Refusal:
    """What a subreaper's FAILED means to the caller."""
    if stage == subreaper.CWD:
        return cwd_refusal(cwd, number)
    if stage == subreaper.USER:
        return Refusal("INVALID_USER", f"the guest cannot become that user: {os.strerror(number)}")
    return spawn_refusal(OSError(number, os.strerror(number)))


class Spill:
    """Where a command goes that is too long for an argument; its folder lasts as long as the call."""

    def __init__(self) -> None:
        self.folder: Folder | None = None

    def __call__(self, script: bytes, account: Account) -> str:
        self.folder = Folder(account.uid, account.gid)
        try:
            return self.folder.write("c", script + b"\n")
        except OSError as problem:
            self.clear()
            raise spawn_refusal(problem) from None

    def clear(self) -> None:
        if self.folder is not None:
            self.folder.clear()


class ExecOperation:
    """Begins commands; in the registry under `exec`."""

    def __init__(self, loop: Loop, pool: Pool, accounts: Accounts) -> None:
        self._loop = loop
        self._pool = pool
        self._accounts = accounts

    def begin(self, channel: Channel, args: dict[str, Any], kind: type[Exec] = Exec) -> Exec:
        """A fresh shell or program for this channel."""
        limits, spill = Limits(args), Spill()
        try:
            job = launch.job_for(args, self._accounts, spill)
            return kind(self._loop, self._pool, channel, job, limits, spill.folder)
        except BaseException:
            spill.clear()
            raise
