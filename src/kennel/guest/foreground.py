"""Owns what every command somebody waits for has in common: two outputs, an input, a limit in time, one EXIT.

Base of Exec (a process of its own) and Typed (a command in a session). Invariant: the EXIT goes out once, after
`finish` and after the outputs have sent what they had to.
"""

from __future__ import annotations

import os
from time import monotonic

from . import framing, launch
from .loop import Loop, Timer
from .output import Output
from .source import Source

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
    """What the caller allows one run: seconds, bytes kept per stream, an input or none."""

    __slots__ = ("max_bytes", "stdin", "timeout")

    def __init__(self, args: dict[str, Any]) -> None:
        timeout = launch.int_of(args, "timeout_ms", 1, _MOST_TIMEOUT)
        self.timeout = None if timeout is None else timeout / 1000
        most = launch.int_of(args, "max_bytes", 0, _MOST_BYTES)
        self.max_bytes = _MOST_BYTES if most is None else most
        self.stdin = args.get("stdin") is True


class Foreground:
    """A command in progress, as its channel sees it."""

    def __init__(self, loop: Loop, channel: Channel, limits: Limits) -> None:
        self._loop = loop
        self._channel = channel
        self._limits = limits
        self._began = monotonic()
        self._status: int | None = None
        self._timed_out = False
        self._timers: list[Timer] = []
        self._source = Source(loop, -1, channel.consumed)
        self._outputs: tuple[Output, ...] = ()
        self._final = False
        self._over = False

    def _attach(self, stdin: int, stdout: int, stderr: int, held: bool = False) -> None:
        """Takes the near ends of the pipes, and starts the clock."""
        most = self._limits.max_bytes
        self._began = monotonic()
        self._source = Source(self._loop, stdin, self._channel.consumed, held)
        self._outputs = (
            Output(self._loop, stdout, framing.STDOUT, most, self._channel, self._settle),
            Output(self._loop, stderr, framing.STDERR, most, self._channel, self._settle),
        )
        if self._limits.timeout is not None:
            self._timers.append(self._loop.later(self._limits.timeout, self._time_is_up))

    def data(self, payload: bytes) -> None:
        """Bytes for standard input."""
        self._source.data(payload)

    def eof(self) -> None:
        """The end of standard input."""
        self._source.eof()

    def flow(self) -> None:
        """There may be room for output."""
        for output in self._outputs:
            output.flow()

    def close(self) -> None:
        """The peer no longer wants it, or is gone: the tree ends."""
        if not self._over:
            self._fell(grace=not self._channel.open)

    def _time_is_up(self) -> None:
        if self._status is None:
            self._timed_out = True
            self._fell(grace=True)

    def _fell(self, grace: bool) -> None:
        raise NotImplementedError

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
