"""Owns one bash that lives through many commands: its subreaper, the lines it reads, the reports it writes.

Made by session. Invariant: bash gets each command as a file it sources with fresh descriptors, and says afterwards on a
named pipe how it went; whatever the command does to descriptors 0, 1 and 2 ends with it. Bash is interactive (without
terminal, history, job control or editing), since only then can a command be given up from outside without losing the
shell: a trap on a spare real-time signal raises SIGINT, which unwinds functions, loops and sourced files to the prompt.
"""

from __future__ import annotations

import os

from . import exec as execution
from . import launch
from .accounts import Account
from .folder import Folder
from .loop import READ, Loop
from .native import SIGKILL
from .pool import Keeper, Pool
from .refusal import Refusal, spawn_refusal
from .source import Source
from .tree import signal_one

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Master(Protocol):
        """Who a shell reports to."""

        def shell_started(self, shell: Shell) -> None: ...
        def shell_failed(self, shell: Shell, refusal: Refusal) -> None: ...
        def shell_opened(self) -> None: ...
        def shell_reported(self, code: int, cwd: bytes, exports: bytes) -> None: ...
        def shell_ended(self, shell: Shell, status: int) -> None: ...
        def shell_empty(self, shell: Shell) -> None: ...


GIVE_UP = 47
"""The signal whose trap unwinds; chosen where neither bash, the C library nor programs have theirs."""
_WORDS = ("bash", "--norc", "--noprofile", "--noediting", "-i", "+m")
_PREPARE = (
    "\\builtin set +o history +H; \\builtin unset HISTFILE MAILCHECK TMOUT PROMPT_COMMAND; "
    "\\builtin shopt -u checkwinsize; PS1='$ '; "
    f"\\builtin trap '\\builtin kill -INT $BASHPID' {GIVE_UP}\n"
)
_REPORT = (
    "{ \\builtin printf '%%s\\0%%s\\0' \"$?\" \"$PWD\"; \\builtin export -p; \\builtin printf '\\0'; } "
    ">%s 2>/dev/null\n"
)
_MOST_REPORT = 4 * 1024 * 1024
OPENED = "\\builtin printf + >%s"


class Shell:
    """A bash and everything that was started from it."""

    def __init__(
        self, loop: Loop, pool: Pool, master: Master, bash: str, account: Account, cwd: str, env: dict[str, str]
    ) -> None:
        self._loop = loop
        self._master = master
        self._cwd = cwd
        self._heard = bytearray()
        self.pid = 0
        self.alive = True
        self.folder = Folder(account.uid, account.gid)
        self._script = Source(loop, -1, _ignore)
        self._control = -1
        job = launch.assemble([bash], _WORDS, launch.environment(account, env), cwd, account)
        try:
            self.report = self.folder.pipe("r")
            self._control = self.folder.open("r", os.O_RDWR)
            self.keeper = self._start(pool, job)
        except OSError as problem:
            self.clear()
            raise spawn_refusal(problem) from None
        except Refusal:
            self.clear()
            raise
        loop.watch(self._control, READ, self._hear)
        self._script.data(_PREPARE.encode())

    def _start(self, pool: Pool, job: launch.Job) -> Keeper:
        read, write = os.pipe()
        self._script = Source(self._loop, write, _ignore)
        try:
            nowhere = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
            try:
                return pool.run(job, [read, nowhere, nowhere], self)
            finally:
                os.close(nowhere)
        finally:
            os.close(read)

    def type(self, lines: str, after: str = "") -> None:
        """Has bash carry out `lines`, then report, then carry out `after`."""
        self._heard.clear()
        self._script.data((lines + _REPORT % self.report + after).encode("utf-8", "surrogateescape"))

    def give_up(self) -> None:
        """Has bash leave the command it is in and come back to its prompt; it then reports."""
        if self.pid:
            signal_one(self.pid, GIVE_UP)

    def kill(self) -> None:
        """Kills bash itself; what it started stays."""
        if self.pid:
            signal_one(self.pid, SIGKILL)

    def _hear(self, events: int) -> None:
        try:
            self._heard += os.read(self._control, 65536)
        except BlockingIOError:
            return
        if self._heard.startswith(b"+"):
            del self._heard[0]
            self._master.shell_opened()
        if len(self._heard) > _MOST_REPORT:
            self._heard.clear()
            self.kill()
        elif self._heard.count(b"\0") >= 3:
            code, cwd, exports = bytes(self._heard).split(b"\0")[:3]
            self._heard.clear()
            self._master.shell_reported(int(code) & 255 if code.isdigit() else 1, cwd, exports)

    # --- what the subreaper says

    def started(self, pid: int) -> None:
        """Bash runs."""
        self.pid = pid
        self._master.shell_started(self)

    def failed(self, stage: int, number: int) -> None:
        """Bash could not be started."""
        self.clear()
        self._master.shell_failed(self, execution.failure(stage, number, self._cwd))

    def exited(self, status: int) -> None:
        """Bash ended; background jobs may live on."""
        self.pid = 0
        self.clear()
        self._master.shell_ended(self, status)

    def idle(self) -> None:
        """Nothing of it is left."""
        self._master.shell_empty(self)

    def lost(self) -> None:
        """Its subreaper was killed, and everything below it after that."""
        if self.alive:
            self.exited(SIGKILL)
        self.idle()

    def clear(self) -> None:
        """Closes the pipes and removes the folder; bash, if it runs, ends at the end of its input."""
        self.alive = False
        self._script.close()
        control, self._control = self._control, -1
        if control >= 0:
            self._loop.close(control)
        self.folder.clear()


def _ignore(count: int) -> None:
    """A shell's own lines need no credit."""


def quote(text: str) -> str:
    """The text as one word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"
