"""Owns one command: its pipes, its subreaper, its limit in time, and the EXIT that says how it ended.

Begun by the `exec` operation. Invariant: it ends exactly once: at the end of the main process, whatever still holds its
pipes; or when its time ran out, its peer closed it or went away, and its whole tree is dead (or LAST_WORD has passed).
"""

from __future__ import annotations

import os
from time import monotonic

from . import framing, launch, subreaper
from .accounts import Accounts
from .felling import Felling
from .loop import Loop, Timer
from .output import Output
from .pool import Keeper, Pool
from .refusal import Refusal, cwd_refusal, spawn_refusal
from .source import Source
from .tree import signal_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .channel import Channel

TIMED_OUT = 124
LAST_WORD = 0.8
"""Seconds after a limit at which the call is answered even if something could not be killed."""
_MOST_TIMEOUT = 7 * 24 * 3600 * 1000
_MOST_BYTES = 1 << 62


class Limits:
    """What the caller allows one run."""

    __slots__ = ("max_bytes", "stdin", "timeout")

    def __init__(self, args: dict[str, Any]) -> None:
        timeout = launch.int_of(args, "timeout_ms", 1, _MOST_TIMEOUT)
        self.timeout = None if timeout is None else timeout / 1000
        most = launch.int_of(args, "max_bytes", 0, _MOST_BYTES)
        self.max_bytes = _MOST_BYTES if most is None else most
        self.stdin = args.get("stdin") is True


class Pipes:
    """The ends of a command's three pipes; both sides closed by whoever takes them."""

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


class Exec:
    """A command in progress."""

    def __init__(self, loop: Loop, pool: Pool, channel: Channel, job: launch.Job, limits: Limits) -> None:
        self._loop = loop
        self._channel = channel
        self._cwd = job[3].decode("utf-8", "replace")
        self._began = monotonic()
        self._status: int | None = None
        self._timed_out = False
        self._felling: Felling | None = None
        self._timers: list[Timer] = []
        self._final = False
        self._over = False
        pipes = Pipes(limits.stdin)
        try:
            self._keeper: Keeper = pool.run(job, pipes.far, self)
        except BaseException:
            pipes.close()
            raise
        pipes.close_far()
        stdin, stdout, stderr = pipes.near
        self._source = Source(loop, stdin, channel)
        self._outputs = (
            Output(loop, stdout, framing.STDOUT, limits.max_bytes, channel, self._settle),
            Output(loop, stderr, framing.STDERR, limits.max_bytes, channel, self._settle),
        )
        for output in self._outputs:
            output.start()
        if limits.timeout is not None:
            self._timers.append(loop.later(limits.timeout, self._time_is_up))

    # --- what the subreaper says

    def started(self, pid: int) -> None:
        """The command runs."""
        self._channel.opened()

    def failed(self, stage: int, number: int) -> None:
        """It could not be started."""
        if stage == subreaper.CWD:
            refusal = cwd_refusal(self._cwd, number)
        elif stage == subreaper.USER:
            refusal = Refusal("INVALID_USER", f"the guest cannot become that user: {os.strerror(number)}")
        else:
            refusal = spawn_refusal(OSError(number, os.strerror(number)))
        self._channel.refuse(refusal)
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

    # --- what the peer says

    def data(self, payload: bytes) -> None:
        """Bytes for standard input."""
        self._source.data(payload)

    def eof(self) -> None:
        """The end of standard input."""
        self._source.eof()

    def signal(self, number: int) -> None:
        """A signal to every process of the command."""
        if self._status is None and 0 < number <= 64:
            signal_below(self._keeper.pid, number)

    def flow(self) -> None:
        """There may be room for output."""
        for output in self._outputs:
            output.flow()

    def close(self) -> None:
        """The peer no longer wants it, or is gone: the tree ends."""
        if not self._over:
            self._fell(grace=self._channel.open is False)

    # --- ends

    def _time_is_up(self) -> None:
        if self._status is None:
            self._timed_out = True
            self._fell(grace=True)

    def _fell(self, grace: bool) -> None:
        if self._felling is None and self._keeper.owner is self:
            self._felling = Felling(self._loop, self._keeper.pid)
            self._timers.append(self._loop.later(LAST_WORD, self._finish))
        if self._felling is not None:
            if grace:
                self._felling.ask()
            else:
                self._felling.kill()

    def _finish(self) -> None:
        """Sends what the pipes hold, then `_settle` ends the call."""
        self._final = True
        self._source.close()
        for output in self._outputs:
            output.finish()
        self._settle()

    def _settle(self) -> None:
        if self._over or not self._final or not all(output.over for output in self._outputs):
            return
        self._channel.end(framing.EXIT, self._account())
        self._clear()

    def _account(self) -> dict[str, Any]:
        stdout, stderr = self._outputs
        status = self._status if self._status is not None else 9
        signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = 128 + signal if signal else os.WEXITSTATUS(status)
        return {
            "code": TIMED_OUT if self._timed_out else code,
            "signal": None if self._timed_out else signal,
            "timed_out": self._timed_out,
            "stdout_bytes": stdout.counted,
            "stderr_bytes": stderr.counted,
            "stdout_truncated": stdout.counted > stdout.sent,
            "stderr_truncated": stderr.counted > stderr.sent,
            "duration_ms": round((monotonic() - self._began) * 1000, 3),
        }

    def _clear(self) -> None:
        self._over = True
        for timer in self._timers:
            timer.cancel()
        self._source.close()
        for output in self._outputs:
            output.abandon()


class ExecOperation:
    """Begins commands; in the registry under `exec`."""

    def __init__(self, loop: Loop, pool: Pool, accounts: Accounts) -> None:
        self._loop = loop
        self._pool = pool
        self._accounts = accounts

    def begin(self, channel: Channel, args: dict[str, Any]) -> Exec:
        """A fresh shell or program for this channel."""
        limits = Limits(args)
        return Exec(self._loop, self._pool, channel, launch.job_for(args, self._accounts), limits)
