"""Owns one output pipe of a command: exact bytes up to a cap, counting beyond it, and a drain that outlives the call.

Made by exec and session. Invariant: the program never meets a closed pipe while anything holds it, and a call never
waits for a pipe that something else still holds: at the end of the main process exactly what lies in the pipe is read.
"""

from __future__ import annotations

import os

from . import native
from .framing import MAX_PAYLOAD
from .loop import READ, Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .channel import Channel

_USUAL_PIPE = 64 * 1024
_SINK_PAUSE = 0.01
"""Seconds between two looks at a pipe nobody reads any more: a background job may write 100 MB/s into it."""


class Output:
    """Standard output or error on its way to a channel; `ended` is called once, when nothing more will be sent."""

    __slots__ = ("_cap", "_channel", "_ended", "_fd", "_left", "_loop", "_size", "_watched", "counted", "kind", "sent")

    def __init__(self, loop: Loop, fd: int, kind: int, cap: int, channel: Channel, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._fd = fd
        self._cap = cap
        self._channel = channel
        self._ended: Callable[[], None] | None = ended
        self._left = -1
        self._size = _USUAL_PIPE
        self._watched = False
        self.kind = kind
        self.counted = 0
        self.sent = 0
        os.set_blocking(fd, False)

    @property
    def over(self) -> bool:
        """Nothing more will be sent."""
        return self._ended is None

    def start(self) -> None:
        """Begins to read."""
        self._watch(True)

    def finish(self) -> None:
        """The main process has ended: sends what lies in the pipe now, however long that takes the peer, no more."""
        if not self.over and self._left < 0:
            self._left = native.readable(self._fd) if self._fd >= 0 else 0
            self.flow()

    def flow(self) -> None:
        """There may be room in the channel: goes on reading."""
        if self.over:
            return
        if self._left >= 0:
            while self._left and self._allowed() and self._take():
                pass
            if self._left == 0:
                self._end()
                return
        self._watch(self._allowed() > 0)

    def _allowed(self) -> int:
        most = self._size if self._left < 0 else min(self._size, self._left)
        if self.sent < self._cap:
            most = min(most, self._channel.room) if self._channel.open else most
        return most

    def _ready(self, events: int) -> None:
        if self._allowed() <= 0:
            self._watch(False)
        elif self._take() and self._left == 0:
            self._end()

    def _take(self) -> bool:
        """One read; false at the end of the pipe, or when there was nothing after all."""
        most = self._allowed()
        try:
            data = os.read(self._fd, most)
        except BlockingIOError:
            if self._left > 0:
                self._left = 0  # a program read its own output back
                self._end()
            return False
        except OSError:
            data = b""
        count = len(data)
        if not count:
            self._left = 0
            self._close()
            self._end()
            return False
        self.counted += count
        if self._left > 0:
            self._left -= count
        keep = min(count, self._cap - self.sent)
        if keep > 0:
            self.sent += keep
            self._channel.output(self.kind, data if keep == count else data[:keep])
        if count == self._size == _USUAL_PIPE:
            native.widen(self._fd)
            self._size = MAX_PAYLOAD
        return True

    def _watch(self, wanted: bool) -> None:
        if self._fd < 0 or wanted is self._watched:
            return
        self._watched = wanted
        if wanted:
            self._loop.watch(self._fd, READ, self._ready)
        else:
            self._loop.forget(self._fd)

    def _end(self) -> None:
        ended, self._ended = self._ended, None
        if ended is None:
            return
        self._watch(False)
        self._sink()
        ended()

    def abandon(self) -> None:
        """Nobody waits for the rest: reads it to nowhere."""
        if self.over:
            return
        self._left = 0
        self._ended = None
        self._watch(False)
        self._sink()

    def _sink(self) -> None:
        """Keeps the pipe empty until its last holder lets go."""
        if self._fd < 0:
            return
        try:
            for _ in range(4):
                if not os.read(self._fd, MAX_PAYLOAD):
                    self._close()
                    return
        except BlockingIOError:
            self._loop.watch(self._fd, READ, self._sink_ready)
            return
        except OSError:
            self._close()
            return
        self._loop.later(_SINK_PAUSE, self._sink)

    def _sink_ready(self, events: int) -> None:
        self._loop.forget(self._fd)
        self._sink()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        self._watched = False
        if fd >= 0:
            self._loop.close(fd)
