"""Owns one channel of a connection, as an operation sees it: frames out, credit both ways, its single end.

Made by connection, used by operations. Invariant: after `end` or `refuse`, or once the connection is gone, nothing
more is sent on it; bytes are only sent within the peer's credit.
"""

from __future__ import annotations

from . import framing
from .refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from .connection import Connection

    class Operation(Protocol):
        """What an operation with a life of its own hears from its channel."""

        def data(self, payload: bytes) -> None: ...
        def eof(self) -> None: ...
        def signal(self, number: int) -> None: ...
        def close(self) -> None: ...
        def flow(self) -> None: ...


class Channel:
    """Where one operation's frames go."""

    __slots__ = ("_allowance", "_connection", "id", "operation", "window")

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection: Connection | None = connection
        self._allowance = framing.Allowance()
        self.id = number
        self.window = framing.Window()
        self.operation: Operation | None = None

    @property
    def open(self) -> bool:
        """Somebody still listens."""
        return self._connection is not None

    @property
    def room(self) -> int:
        """Bytes of output that may go out now: the peer's credit, or 0 while the connection is full."""
        if self._connection is None or self._connection.full:
            return 0
        return self.window.room

    def opened(self) -> None:
        """The work was started; travels with the next frame, at most a few milliseconds later."""
        if self._connection is not None:
            self._connection.send(framing.frame(framing.OPENED, self.id), lazily=True)

    def head(self, value: dict[str, Any]) -> None:
        """HEAD: what the operation says before its bytes; once."""
        if self._connection is not None:
            self._connection.send(framing.control(framing.HEAD, self.id, value))

    def output(self, kind: int, payload: bytes) -> None:
        """STDOUT or STDERR, at most `room` and MAX_PAYLOAD bytes."""
        if self._connection is not None:
            self.window.take(len(payload))
            self._connection.send(framing.header(kind, self.id, len(payload)), payload)

    def widen(self, count: int) -> None:
        """Lets the peer send `count` bytes more ahead; for what is taken at once, and so never waits here."""
        self._allowance.widen(count)
        if self._connection is not None:
            self._connection.send(framing.credit(self.id, count))

    def received(self, count: int) -> None:
        """DATA came; FrameError when there was no credit for it."""
        self._allowance.received(count)

    def consumed(self, count: int) -> None:
        """A frame of DATA of `count` bytes has left the guest's memory."""
        grant = self._allowance.consumed(count)
        if grant and self._connection is not None:
            self._connection.send(framing.credit(self.id, grant))

    def end(self, kind: int, value: dict[str, Any]) -> None:
        """EXIT or RESULT; the channel is over."""
        connection = self.detach()
        if connection is not None:
            connection.over(self)
            connection.send(framing.control(kind, self.id, value))

    def refuse(self, refusal: Refusal) -> None:
        """ERROR; the channel is over."""
        self.end(framing.ERROR, refusal.to_control())

    def detach(self) -> Connection | None:
        """From now on nobody listens."""
        connection, self._connection = self._connection, None
        return connection
