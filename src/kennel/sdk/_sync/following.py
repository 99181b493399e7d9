# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns iterating over what a server keeps sending: messages over any number of connections, lines over one.

Called by programs through `events()`, `updates()` and `export()`. Invariant: nothing is delivered twice or left out
over a reconnection; leaving the iteration by `close` or a `with` block gives the connection back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from kennel.sdk._sync.reply import Reply
from kennel.sdk._sync.transport import PAUSES, Headers, Transport
from kennel.sdk.failures import may_follow_on
from kennel.sdk.messages import Lines, Message, Messages
from kennel.wire.errors import KennelError, error

T = TypeVar("T")

SILENCE = 45.0
"""Seconds without a byte after which a connection counts as lost: three of the server's heartbeats."""


class Following(Generic[T]):
    """An iterator over a server's messages, each as `decode` reads it; what that makes None is passed over.

    A lost connection is made again, for about six seconds, from the last message's id on. It ends after a value that is
    the `last`.
    """

    def __init__(
        self,
        transport: Transport,
        route: str,
        query: dict[str, str],
        decode: Callable[[Message], T | None],
        *,
        resume: bool,
        last: Callable[[T], bool] | None = None,
    ) -> None:
        self._transport, self._route, self._query, self._decode = transport, route, query, decode
        self._resume = resume
        self._is_last = last
        self._reply: Reply | None = None
        self._parser = Messages()
        self._waiting: list[Message] = []
        self._last: str | None = None
        self._failed: list[KennelError] = []
        self._reached = False
        self._ended = False

    def __iter__(self) -> Following[T]:
        return self

    def __next__(self) -> T:
        while not self._ended:
            while self._waiting:
                message = self._waiting.pop(0)
                self._last = message.id
                value = self._decode(message)
                if value is not None:
                    self._failed.clear()
                    if self._is_last is not None and self._is_last(value):
                        self.close()
                    return value
            self._more()
        self.close()
        raise StopIteration

    def open(self) -> Following[T]:
        """Connects now rather than at the first message; raises what the server refuses it for."""
        headers: Headers = {"Last-Event-ID": self._last} if self._resume and self._last is not None else {}
        reply = self._transport.open(
            self._route, accept="text/event-stream", query=self._query, headers=headers, silence=SILENCE
        )
        self._reply, self._parser, self._reached = reply, Messages(), True
        if self._ended:
            self.close()
        return self

    def interrupt(self) -> None:
        """Ends the iteration from another thread or task: its next step is its last."""
        self._ended = True
        if self._reply is not None:
            self._reply.hang_up()

    def close(self) -> None:
        """Ends the iteration and gives the connection back."""
        self._ended = True
        self._let_go()

    def _let_go(self) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.close()

    def _more(self) -> None:
        """Reads on, over a new connection when there is none."""
        try:
            if self._reply is None:
                self.open()
                return
            piece = self._reply.read()
            if piece is None:
                raise error("CONNECTION_LOST", "the server ended the stream", admitted="unknown")
            self._waiting = self._parser.feed(piece)
            if not self._waiting:
                self._failed.clear()  # a heartbeat: the connection works
        except KennelError as failure:
            self._let_go()
            if not self._ended:
                self._pause_after(failure)

    def _pause_after(self, failure: KennelError) -> None:
        """Waits a little before the next connection; raises when trying has no sense, or went on for too long."""
        tries = len(self._failed)
        if tries == len(PAUSES) or not may_follow_on(failure, self._reached):
            self._ended = True
            raise self._failed[0] if tries == len(PAUSES) else failure
        self._failed.append(failure)
        time.sleep(PAUSES[tries])

    def __enter__(self) -> Following[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Export:
    """An iterator over an answer's lines, bytes with their line ends; one that is cut off ends with CONNECTION_LOST."""

    def __init__(self, transport: Transport, route: str) -> None:
        self._transport, self._route = transport, route
        self._reply: Reply | None = None
        self._lines = Lines()
        self._waiting: list[bytes] = []
        self._ended = False

    def __iter__(self) -> Export:
        return self

    def __next__(self) -> bytes:
        while not self._waiting:
            if self._ended:
                raise StopIteration
            if self._reply is None:
                self._reply = self._transport.open(
                    self._route, accept="application/x-ndjson", query={}, headers={}, silence=self._transport.timeout
                )
            piece = self._read(self._reply)
            self._waiting = [] if piece is None else self._lines.feed(piece)
        return self._waiting.pop(0) + b"\n"

    def _read(self, reply: Reply) -> bytes | None:
        """The next piece; at the end and at a failure the connection is given back."""
        piece = None
        try:
            piece = reply.read()
        finally:
            if piece is None:
                self.close()
        return piece

    def close(self) -> None:
        """Ends the iteration and gives the connection back."""
        self._ended = True
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.close()

    def __enter__(self) -> Export:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
