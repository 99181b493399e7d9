"""Owns one call that reads a process's log: what is kept of it, then what comes.

Begun by `process.logs`. Invariant: every byte after the cursor is sent once and in order; where bytes are gone already
the call ends with a gap and says where it can go on, because a program never waits for whoever reads its log.
"""

from __future__ import annotations

from . import framing, launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .channel import Channel
    from .process import Process

_MOST_POSITION = 1 << 62


class Following:
    """HEAD with the record, bytes, and a RESULT: `gap`, or the record again and the position that was reached."""

    def __init__(self, channel: Channel, process: Process, args: dict[str, Any]) -> None:
        self._channel = channel
        self._process = process
        since = launch.int_of(args, "since", 0, _MOST_POSITION) or 0
        self._at = min(since, process.ring.last)
        # What was gone before anybody asked is no gap of this call: its reader is told where it begins.
        self._at = max(self._at, process.ring.first)
        self._live = args.get("follow") is True and process.running
        self._stop = _MOST_POSITION if self._live else process.ring.last
        if self._live:
            process.listen(self)
        channel.opened()
        channel.head({"at": self._at, "missed": self._at - min(since, self._at), **process.facts()})
        self.flow()

    def flow(self) -> None:
        """There may be room."""
        ring = self._process.ring
        while self._channel.open:
            if ring.first > self._at:
                self._end({"gap": True, "first": ring.first})
                return
            found = ring.read(self._at, min(self._channel.room, framing.MAX_PAYLOAD, self._stop - self._at))
            if found is None:
                break
            kind, data = found
            self._at += len(data)
            self._channel.output(kind, data)
        if self._channel.open and self._at >= min(ring.last, self._stop) and not self._live:
            self._end({"gap": False})

    def _end(self, value: dict[str, Any]) -> None:
        self._process.leave(self)
        self._channel.end(framing.RESULT, {**value, "at": self._at, "record": self._process.facts()})

    # --- what the process says

    def wrote(self, kind: int, data: bytes) -> None:
        """There is more."""
        self.flow()

    def ended(self) -> None:
        """No more will come."""
        self._live = False
        self.flow()

    # --- what the peer says

    def data(self, payload: bytes) -> None:
        """Takes none."""
        self._channel.consumed(len(payload))

    def eof(self) -> None:
        """Takes none."""

    def signal(self, number: int) -> None:
        """Not here."""

    def close(self) -> None:
        """Nobody reads any more."""
        if self._channel.open:
            self._end({"gap": False})
        else:
            self._process.leave(self)
