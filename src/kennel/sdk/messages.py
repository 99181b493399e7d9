"""Owns what arrives on a connection that stays open: Server-Sent Events and JSON lines, and what they mean.

Called by both halves of the SDK. Invariant: however the bytes are cut into pieces, the messages are the same; what
waits for its end is bounded; a live view's state is the server's at that revision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from kennel.sdk.answers import decoded
from kennel.sdk.records import Event, LiveUpdate, Projection, patched
from kennel.wire.errors import error

MAX_WAITING = 8 * 1024 * 1024
"""Bytes of one unfinished line or message: an event has at most 256 KiB of payload, and JSON may escape it sixfold."""


@dataclass(frozen=True, slots=True)
class Message:
    """One Server-Sent Event; `id` is the last one seen so far."""

    event: str
    id: str | None
    data: bytes


class Lines:
    """Bytes in, whole lines out, without their line ends."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes; PROTOCOL_VIOLATION when one grows past MAX_WAITING."""
        *whole, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > MAX_WAITING:
            raise error("PROTOCOL_VIOLATION", f"the server's line is over {MAX_WAITING} bytes")
        return [line.removesuffix(b"\r") for line in whole]


class Messages:
    """Bytes in, whole messages out; comments (the server's heartbeat) are passed over."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._event = "message"
        self._id: str | None = None
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[Message]:
        """The messages that this piece completes; PROTOCOL_VIOLATION when one grows past MAX_WAITING."""
        found = []
        for line in self._lines.feed(piece):
            if line:
                self._field(line)
                continue
            if self._data:
                found.append(Message(self._event, self._id, b"\n".join(self._data)))
            self._event, self._data, self._size = "message", [], 0
        return found

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        self._size += len(line)
        if self._size > MAX_WAITING:
            raise error("PROTOCOL_VIOLATION", f"the server's message is over {MAX_WAITING} bytes")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and value.isdigit():
            self._id = value.decode("ascii")


def event_of(message: Message) -> Event | None:
    """The event in a stream's message; None for a gap, after which the stream is simply followed on."""
    return decoded(message.data, Event) if message.event == "message" else None


class _Update(msgspec.Struct):
    revision: int
    previous: int | None = None
    state: dict[str, Any] | None = None
    operations: list[dict[str, Any]] = []


class Replica:
    """A sandbox's state on this side, kept equal to the server's by its messages."""

    def __init__(self) -> None:
        self._state: Any = {}
        self._revision = -1

    def take(self, message: Message) -> LiveUpdate | None:
        """What this message came to; None for a kind that this version does not know."""
        if message.event not in ("snapshot", "diff", "gap"):
            return None
        update = decoded(message.data, _Update)
        if message.event == "snapshot":
            self._state = update.state
        elif message.event == "diff":
            if update.previous != self._revision:
                told = f"the diff is from revision {update.previous}, this side is at {self._revision}"
                raise error("PROTOCOL_VIOLATION", told)
            self._state = patched(self._state, update.operations)
        self._revision = update.revision
        try:
            state = msgspec.convert(self._state, Projection)
        except msgspec.ValidationError as failure:
            raise error("PROTOCOL_VIOLATION", f"this is no sandbox's state: {failure}") from failure
        return LiveUpdate(
            kind=message.event,  # type: ignore[arg-type]  # one of the three above
            revision=update.revision,
            state=state,
            previous=update.previous,
            operations=update.operations,
        )
