"""Owns one sandbox connection that speaks HTTP: requests in order, one at a time, each an exchange of its own.

Made by the entrance. Invariant: reading stops while something is owed (a pipelined request, an undispatched body, a
slow host), so memory stays bounded; a connection that misses its time is closed.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, cast

from kennel.domain.denial import Refused
from kennel.gateway.bucket import Bucket
from kennel.gateway.context import Context
from kennel.gateway.exchange import Exchange
from kennel.gateway.judge import Place
from kennel.gateway.request_reader import Incoming, RequestReader
from kennel.gateway.upstream import Upstream

_BUFFER = 256 * 1024
_LINGER = 2.0
_KEEPS_HOST = 3.0
"""Seconds for which an idle connection keeps the one to its host for itself."""
PIPELINE, BODY, HOST, TUNNEL = 1, 2, 4, 8


class Conversation(asyncio.Protocol):
    """One connection, intercepted."""

    def __init__(self, context: Context, place: Place) -> None:
        self.context: Final = context
        self.place: Final = place
        self.transport: asyncio.Transport | None = None
        self.upstream: Upstream | None = None
        self.exchange: Exchange | None = None
        self.deadline = time.monotonic() + context.options.hello_timeout
        self._reader = RequestReader()
        self._paused = 0
        self._draining = False
        self._advancing = False
        self._delayed = False

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of it
        self.transport.set_write_buffer_limits(high=_BUFFER)
        if self.place.sandbox.gone:
            self.transport.abort()
            return
        self.place.sandbox.live.add(self)

    def data_received(self, data: bytes) -> None:
        if self._draining:
            return
        exchange = self.exchange
        if exchange is not None and exchange.tunnelled:
            exchange.on_sandbox_data(data)
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
            exchange.on_sandbox_end()
            return True
        # Half-closed after a whole request: the answer is still wanted, unless a person has yet to decide.
        return exchange is not None and exchange.incoming.complete and not exchange.held

    def connection_lost(self, exc: Exception | None) -> None:
        self.place.sandbox.live.discard(self)
        exchange, self.exchange = self.exchange, None
        self._draining = True
        if exchange is not None:
            exchange.on_sandbox_gone()
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            self.context.give_idle(self.place.sandbox, self.place.origin, upstream)

    def pause_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.pause_host(True)

    def resume_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.pause_host(False)

    # Called by the registry and the sweeper.

    def cut(self, why: str) -> None:
        """Ends the connection now."""
        if self.exchange is not None:
            self.exchange.cut_for = why
        if self.upstream is not None:
            self.upstream.abort()
        if self.transport is not None:
            self.transport.abort()

    def review(self) -> None:
        """After a change of policy: a tunnel that lost its leave is cut; requests are judged one by one anyway."""
        if self.exchange is not None and self.exchange.tunnelled:
            self.exchange.review()

    def overdue(self, now: float) -> None:
        """Closes a connection whose time is over; one that is only idle gives its host's connection back."""
        upstream = self.upstream
        if self.exchange is None and upstream is not None and now - upstream.idle_since > _KEEPS_HOST:
            self.upstream = None
            self.context.give_idle(self.place.sandbox, self.place.origin, upstream)
        if now < self.deadline or self.transport is None:
            return
        if self.exchange is not None:
            self.exchange.overdue()
        elif self._reader.partial:
            self.refuse_rest(Refused("request_timeout", "the request's head took too long"))
        else:
            self.transport.abort()

    # Called by the exchange.

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def hold_reading(self, reason: int, on: bool) -> None:
        """Stops or resumes reading from the sandbox; it goes on when no reason is left."""
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
        self.deadline = now + self.context.options.idle_timeout
        if self._paused:
            self.hold_reading(BODY | HOST, False)
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
        self.hold_reading(PIPELINE | BODY | HOST, False)
        asyncio.get_running_loop().call_later(_LINGER, self.transport.close)

    def refuse_rest(self, refused: Refused) -> None:
        """Answers bytes that are no request, and ends."""
        exchange = Exchange(self, Incoming())
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
                    self.exchange = exchange = Exchange(self, incoming)
                    self.deadline = time.monotonic() + self.context.options.response_timeout
                    exchange.start()
                elif self._reader.broken is not None:
                    self.refuse_rest(self._reader.broken)
                    return
                else:
                    if self._reader.partial:
                        self.deadline = min(self.deadline, time.monotonic() + self.context.options.hello_timeout)
                    return
        finally:
            self._advancing = False

    def _admitted(self) -> bool:
        """Whether the sandbox's rate lets the next request begin; if not, it begins later."""
        bucket, now = self.place.sandbox.requests, time.monotonic()
        if bucket is None:
            rate = self.context.options.requests_per_second
            bucket = self.place.sandbox.requests = Bucket(rate, 2 * rate, now)
        if bucket.take(now):
            return True
        self.deadline = max(self.deadline, now + self.context.options.hello_timeout)
        if not self._delayed:
            self._delayed = True
            asyncio.get_running_loop().call_later(max(0.005, bucket.wait()), self._retry)
        return False

    def _retry(self) -> None:
        self._delayed = False
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
