"""Owns calls that wait for a process: for its end, for a line it writes, for a port it opens.

Begun by `process.wait` and `process.port`. Invariant: what was written before the call counts as well as what comes,
and nothing twice; a process that ends first ends the wait at once; leaving a wait changes nothing for the process.
"""

from __future__ import annotations

from . import framing, launch
from .line_watch import LineWatch
from .loop import Loop, Timer
from .probe import Probe
from .refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .channel import Channel
    from .process import Process

_MOST_POSITION = 1 << 62
_INTERVAL = 100
_PIECE = 64 * 1024


class Waiting:
    """A wait for the end of a process; base of the others."""

    def __init__(self, channel: Channel, process: Process | None) -> None:
        self._channel = channel
        self._process = process
        self._over = False
        channel.opened()

    def begin(self) -> None:
        """Listens, unless it is over already."""
        if self._process is None or self._over:
            return
        if self._process.running:
            self._process.listen(self)
        else:
            self.ended()

    def answer(self, value: dict[str, Any]) -> None:
        """What was waited for is there."""
        self.leave()
        self._channel.end(framing.RESULT, value)

    def leave(self) -> None:
        """Listens no more."""
        self._over = True
        if self._process is not None:
            self._process.leave(self)

    def wrote(self, kind: int, data: bytes) -> None:
        """The process wrote something."""

    def ended(self) -> None:
        """The process is over."""
        assert self._process is not None
        self.answer(self._process.facts())

    def too_late(self) -> None:
        """The process is over, and what was waited for never came."""
        process = self._process
        assert process is not None
        details: dict[str, Any] = {"processId": process.name}
        if process.exit is not None:
            details |= {"exitCode": process.exit["code"], "signal": process.exit["signal"]}
        self.leave()
        message = "the process ended before what was waited for"
        self._channel.refuse(Refusal("PROCESS_EXITED_BEFORE_READY", message, **details))

    def data(self, payload: bytes) -> None:
        """Takes none."""
        self._channel.consumed(len(payload))

    def eof(self) -> None:
        """Takes none."""

    def signal(self, number: int) -> None:
        """Not here."""

    def flow(self) -> None:
        """Has nothing to send."""

    def close(self) -> None:
        """The caller left, or its time is up."""
        self.leave()
        self._channel.refuse(Refusal("OPERATION_INTERRUPTED", "the wait was given up"))


class LineWait(Waiting):
    """A wait for a line with a text, or of a pattern, in what is kept and what comes."""

    def __init__(self, channel: Channel, process: Process, args: dict[str, Any]) -> None:
        since = launch.int_of(args, "since", 0, _MOST_POSITION) or 0
        stream = launch.text_of(args, "stream")
        self._kinds = {
            "stdout": (framing.STDOUT,),
            "stderr": (framing.STDERR,),
        }.get(stream or "", (framing.STDOUT, framing.STDERR))
        self._watches = {
            kind: LineWatch(launch.text_of(args, "text"), launch.text_of(args, "pattern")) for kind in self._kinds
        }
        self._at = max(since, process.ring.first)
        super().__init__(channel, process)

    def begin(self) -> None:
        """Looks through what is there first."""
        assert self._process is not None
        ring = self._process.ring
        self._at = max(self._at, ring.first)
        while not self._over and (found := ring.read(self._at, _PIECE)) is not None:
            if self._look(*found):
                return
        super().begin()

    def wrote(self, kind: int, data: bytes) -> None:
        """One more piece."""
        self._look(kind, data)

    def _look(self, kind: int, data: bytes) -> bool:
        watch = self._watches.get(kind)
        line = watch.feed(data) if watch is not None else None
        if line is None:
            self._at += len(data)
            return False
        self._found(kind, line, self._at + (watch.taken if watch is not None else 0))
        return True

    def _found(self, kind: int, line: str, at: int) -> None:
        stream = "stdout" if kind == framing.STDOUT else "stderr"
        self.answer({"line": line, "stream": stream, "at": at})

    def ended(self) -> None:
        """The last line may have no end."""
        for kind, watch in self._watches.items():
            line = watch.end()
            if line is not None:
                self._found(kind, line, self._at)
                return
        self.too_late()


class PortWait(Waiting):
    """A wait for something that accepts connections, or answers HTTP, on a port of the sandbox."""

    def __init__(self, loop: Loop, channel: Channel, process: Process | None, args: dict[str, Any]) -> None:
        self._probe = Probe(loop, args, self._tried)
        self._loop = loop
        self._interval = (launch.int_of(args, "interval_ms", 10, 60_000) or _INTERVAL) / 1000
        self._timer: Timer | None = None
        super().__init__(channel, process)
        if process is None:
            self.begin()

    def begin(self) -> None:
        """Tries at once."""
        if self._process is not None and not self._process.running:
            self.too_late()
            return
        super().begin()
        if not self._over:
            self._try()

    def _try(self) -> None:
        self._timer = None
        self._probe.try_now()

    def _tried(self, status: int | None) -> None:
        if status is None:
            self._timer = self._loop.later(self._interval, self._try)
        else:
            self.answer({"port": self._probe.port, "status": status or None})

    def ended(self) -> None:
        """Nobody will open it any more."""
        self.too_late()

    def leave(self) -> None:
        """Tries no more."""
        super().leave()
        self._probe.stop()
        if self._timer is not None:
            self._timer.cancel()


def ready_when(loop: Loop, channel: Channel, process: Process, args: dict[str, Any]) -> Waiting:
    """The wait that was asked for."""
    wanted = args.get("for")
    waiting: Waiting
    if wanted == "exit":
        waiting = Waiting(channel, process)
    elif wanted == "log":
        waiting = LineWait(channel, process, args)
    elif wanted == "port":
        waiting = PortWait(loop, channel, process, args)
    else:
        raise Refusal("VALIDATION_FAILED", "a process is waited for by its exit, a log line or a port")
    loop.soon(waiting.begin)
    return waiting
