"""Owns one connection of a client that speaks HTTP: requests in order, one at a time, each served by its own object.

Made for a sandbox's connections (conversation) and for visitors of previews (preview_link). Invariant: reading stops
while something is owed (a pipelined request, an undispatched body, a slow server), so memory stays bounded; a
connection that misses its time is closed.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from typing import Final, Generic, Protocol, TypeVar, cast

from kennel.domain.denial import Refused
from kennel.gateway.options import Options
from kennel.gateway.request_reader import Incoming, RequestReader

_BUFFER = 256 * 1024
_LINGER = 2.0
PIPELINE, BODY, SERVER = 1, 2, 4


class Serving(Protocol):
    """One request in service."""

    incoming: Incoming
    tunnelled: bool
    held: bool
    wanted_body: int

    def start(self) -> None: ...
    def refuse(self, refused: Refused) -> None: ...
    def overdue(self) -> None: ...
    def pause_server(self, paused: bool) -> None: ...
    def on_client_data(self, data: bytes) -> None: ...
    def on_client_end(self) -> None: ...
    def on_client_gone(self) -> None: ...
    def on_broken_body(self, refused: Refused) -> None: ...


S = TypeVar("S", bound=Serving)


class ClientLink(asyncio.Protocol, ABC, Generic[S]):
    """One connection; who extends it says what serves a request, and what becomes of the server's side."""

    def __init__(self, options: Options) -> None:
        self.options: Final = options
        self.transport: asyncio.Transport | None = None
        self.exchange: S | None = None
        self.deadline = time.monotonic() + options.hello_timeout
        self._reader = RequestReader()
        self._paused = 0
        self._draining = False
        self._advancing = False

    @abstractmethod
    def _serve(self, incoming: Incoming) -> S:
        """What serves this request."""

    @abstractmethod
    def _arrived(self) -> bool:
        """The connection is made; False cuts it."""

    @abstractmethod
    def _left(self) -> None:
        """The connection is gone; its request was told already."""

    def _admitted(self) -> bool:
        """Whether the next request may begin; if not, `_retry` is called later."""
        return True

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of it
        self.transport.set_write_buffer_limits(high=_BUFFER)
        if not self._arrived():
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._draining:
            return
        exchange = self.exchange
        if exchange is not None and exchange.tunnelled:
            exchange.on_client_data(data)
            return
        self._reader.feed(data)
        if exchange is None:
            self._advance()
        elif self._reader.broken is not None and not exchange.incoming.complete:
            exchange.on_broken_body(self._reader.broken)
        self._balance()

    def eof_received(self) -> bool:
        exchange = self.exchange
        if exchange is not None and exchange.tunnelled:
            exchange.on_client_end()
            return True
        # Half-closed after a whole request: the answer is still wanted, unless a person has yet to decide.
        return exchange is not None and exchange.incoming.complete and not exchange.held

    def connection_lost(self, exc: Exception | None) -> None:
        exchange, self.exchange = self.exchange, None
        self._draining = True
        if exchange is not None:
            exchange.on_client_gone()
        self._left()

    def pause_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.pause_server(True)

    def resume_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.pause_server(False)

    # Called by whoever sweeps.

    def overdue(self, now: float) -> None:
        """Closes a connection whose time is over."""
        if now < self.deadline or self.transport is None:
            return
        if self.exchange is not None:
            self.exchange.overdue()
        elif self._reader.partial:
            self.refuse_rest(Refused("request_timeout", "the request's head took too long"))
        else:
            self.transport.abort()

    # Called by what serves a request.

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def hold_reading(self, reason: int, on: bool) -> None:
        """Stops or resumes reading from the client; it goes on when no reason is left."""
        before, self._paused = self._paused, self._paused | reason if on else self._paused & ~reason
        if self.transport is None or self.transport.is_closing():
            return
        if self._paused and not before:
            self.transport.pause_reading()
        elif before and not self._paused:
            self.transport.resume_reading()

    def body_taken(self) -> None:
        """The exchange took what was kept of the body."""
        self._balance()

    def leftover(self) -> bytes:
        """Bytes behind a protocol switch."""
        return self._reader.switched.leftover if self._reader.switched is not None else b""

    def done(self, *, keep: bool) -> None:
        """The exchange is over; the next request may begin, or the connection ends."""
        self.exchange = None
        now = time.monotonic()
        if not keep or self._reader.switched is not None:
            self.close()
            return
        self.deadline = now + self.options.idle_timeout
        if self._paused:
            self.hold_reading(BODY | SERVER, False)
        if not self._advancing:
            self._advance()
            self._balance()

    def close(self) -> None:
        """Ends the connection once everything is written, reading on for a moment so that the answer arrives."""
        if self.transport is None or self.transport.is_closing():
            return
        if self._reader.broken is None and not self._reader.body_open and not self._reader.arrived:
            self.transport.close()
            return
        self._draining = True
        self.hold_reading(PIPELINE | BODY | SERVER, False)
        asyncio.get_running_loop().call_later(_LINGER, self.transport.close)

    def refuse_rest(self, refused: Refused) -> None:
        """Answers bytes that are no request, and ends."""
        exchange = self._serve(Incoming())
        self.exchange = exchange
        exchange.refuse(refused)

    # Inside.

    def _advance(self) -> None:
        """Begins the next request, and the next while they end at once."""
        self._advancing = True
        try:
            while self.exchange is None and not self._draining:
                if self._reader.arrived:
                    if not self._admitted():
                        return
                    incoming = self._reader.arrived.popleft()
                    if self._reader.broken is not None and not incoming.complete:
                        incoming.fault = incoming.fault or self._reader.broken
                    self.exchange = exchange = self._serve(incoming)
                    self.deadline = time.monotonic() + self.options.response_timeout
                    exchange.start()
                elif self._reader.broken is not None:
                    self.refuse_rest(self._reader.broken)
                    return
                else:
                    if self._reader.partial:
                        self.deadline = min(self.deadline, time.monotonic() + self.options.hello_timeout)
                    return
        finally:
            self._advancing = False

    def _retry(self) -> None:
        """Looks again whether the next request may begin."""
        if self.exchange is None and not self._advancing:
            self._advance()
            self._balance()

    def _balance(self) -> None:
        exchange = self.exchange
        if self._draining:
            return
        owed = bool(self._reader.arrived) or (self._reader.broken is not None and exchange is not None)
        if not owed and exchange is None and not self._paused:
            return
        self.hold_reading(PIPELINE, owed)
        if exchange is not None:
            most = exchange.wanted_body or _BUFFER
            over = exchange.incoming.buffered >= most or len(exchange.incoming.leftover) >= _BUFFER
            self.hold_reading(BODY, over)
