# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns iterating over what was started by this call and may outlive its connection: a command, a cell of code.

Base of exec_stream and interpreter. Invariants: it is started once and never repeated; the iteration ends after the
last event or with an error, and by nothing else; leaving it early ends what runs.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from kennel.sdk._sync.reply import Reply
from kennel.sdk._sync.transport import PAUSES, Transport
from kennel.sdk.failures import may_follow_on
from kennel.sdk.messages import Message, Messages
from kennel.wire.errors import KennelError, error

T = TypeVar("T")


class Returning(Generic[T]):
    """An iterator over events; `_name` is what the server calls it, once known, below the route that started it."""

    def __init__(self, transport: Transport, route: str, body: dict[str, Any], silence: float) -> None:
        self._transport, self._route, self._body, self._silence = transport, route, body, silence
        self._reply: Reply | None = None
        self._parser = Messages()
        self._waiting: list[Message] = []
        self._last: str | None = None
        self._name: str | None = None
        self._failed: list[KennelError] = []
        self._ended = False

    def _event(self, message: Message) -> T | None:
        """What a message says; None for a kind this version does not know, an error when it is one."""
        raise NotImplementedError

    def _over(self, event: T) -> bool:
        """Whether it is the last."""
        raise NotImplementedError

    def _answered(self, reply: Reply) -> None:
        """The server has begun to answer."""

    def _query(self) -> dict[str, str]:
        """How the rest is to be sent."""
        return {}

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while not self._ended:
            while self._waiting:
                message = self._waiting.pop(0)
                self._last = message.id
                event = self._read(message)
                if event is not None:
                    return event
            self._more()
        raise StopIteration

    def _read(self, message: Message) -> T | None:
        try:
            event = self._event(message)
        except KennelError:
            self._finish()
            raise
        if event is not None and self._over(event):
            self._finish()
        return event

    def _finish(self) -> None:
        self._ended = True
        self._let_go()

    def _let_go(self) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.close()

    def open(self) -> Self:
        """Starts it now rather than at the first event; raises what it is refused for."""
        if self._name is None:
            self._reply = self._transport.open(
                self._route, accept="text/event-stream", query={}, headers={}, silence=self._silence, method="POST",
                body=self._body,
            )  # fmt: skip
        else:
            self._reply = self._transport.open(
                f"{self._route}/{self._name}", accept="text/event-stream", query=self._query(),
                headers={"Last-Event-ID": self._last or "0"}, silence=self._silence,
            )  # fmt: skip
        self._answered(self._reply)
        self._parser = Messages()
        return self

    def _more(self) -> None:
        """Reads on; over a new connection where what runs outlives the old one."""
        try:
            if self._reply is None:
                self.open()
                return
            piece = self._reply.read()
            if piece is None:
                raise error("CONNECTION_LOST", "the stream ended before its last event", admitted="yes")
            self._waiting = self._parser.feed(piece)
            self._failed.clear()
        except KennelError as failure:
            self._let_go()
            self._pause_after(failure)

    def _pause_after(self, failure: KennelError) -> None:
        tries = len(self._failed)
        again = self._name is not None and self._body.get("linger") and may_follow_on(failure, True)
        if not again or tries == len(PAUSES):
            self._ended = True
            if failure.code == "COMMAND_NOT_FOUND" and self._failed:
                raise self._failed[0]  # the server that knew it is gone, and what it followed with it
            raise failure
        self._failed.append(failure)
        time.sleep(PAUSES[tries])

    def close(self) -> None:
        """Ends the iteration, and what runs if it still does."""
        running = not self._ended and self._name is not None
        self._finish()
        if running and self._body.get("linger"):
            self._transport.call("DELETE", f"{self._route}/{self._name}", type(None), repeat=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
