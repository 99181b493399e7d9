"""Owns one call that is attached to a terminal: what it has seen, whether it drives, what it is told.

Begun by `terminal.attach`. Invariant: bytes come in order, and where some are gone a notice stands in their place; a
watcher's keys go nowhere.
"""

from __future__ import annotations

from . import codec, framing, launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .channel import Channel
    from .terminal import Terminal

_MOST_POSITION = 1 << 62
_MOST_NOTICES = 64


class Attachment:
    """HEAD with the terminal's facts; STDOUT for its bytes, STDERR for notices in JSON; a RESULT with its end."""

    def __init__(self, channel: Channel, terminal: Terminal, args: dict[str, Any]) -> None:
        self._channel = channel
        self._terminal = terminal
        self._notices: list[bytes] = []
        self.drives = args.get("drive") is True and terminal.running
        ring = terminal.ring
        since = launch.int_of(args, "since", 0, _MOST_POSITION)
        asked = ring.first if since is None else min(since, ring.last)
        self.at = max(asked, ring.first)
        terminal.attach(self)
        channel.opened()
        channel.head({"at": self.at, "missed": self.at - asked, "drives": self.drives, **terminal.facts()})
        self.flow()
        if not terminal.running:
            self.ended()

    def notice(self, value: dict[str, Any]) -> None:
        """Says something beside the bytes."""
        if len(self._notices) < _MOST_NOTICES:
            self._notices.append(codec.encode(value))
        self.flow()

    def flow(self) -> None:
        """Sends what there is room for."""
        ring = self._terminal.ring
        while self._channel.open:
            if self._notices:
                if self._channel.room < len(self._notices[0]):
                    return
                self._channel.output(framing.STDERR, self._notices.pop(0))
                continue
            if ring.first > self.at:
                missed, self.at = ring.first - self.at, ring.first
                self.notice({"type": "truncated", "bytes": missed})
                return
            found = ring.read(self.at, min(self._channel.room, framing.MAX_PAYLOAD))
            if found is None:
                break
            self.at += len(found[1])
            self._channel.output(framing.STDOUT, found[1])
        if self._channel.open and not self._terminal.running:
            if self.at >= ring.last and not self._notices:
                self._leave()
        elif self.drives:
            self._terminal.flow()

    def ended(self) -> None:
        """The program is over."""
        self.flow()

    def _leave(self) -> None:
        self._terminal.leave(self)
        self._channel.end(framing.RESULT, {"at": self.at, "exit": self._terminal.exit})

    # --- what the peer says

    def data(self, payload: bytes) -> None:
        """Keys."""
        if self.drives and self._terminal.running:
            self._terminal.write(self, payload)
        else:
            self.taken(len(payload))

    def taken(self, count: int) -> None:
        """The terminal has those keys, or nobody wants them."""
        self._channel.consumed(count)

    def eof(self) -> None:
        """Means nothing to a terminal."""

    def signal(self, number: int) -> None:
        """Not here: a terminal's keys do that."""

    def close(self) -> None:
        """Nobody looks any more; the program goes on."""
        if self._channel.open:
            self._leave()
        else:
            self._terminal.leave(self)
