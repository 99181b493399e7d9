"""Owns one connection of a sandbox that speaks HTTP to somebody outside: each request an exchange of its own.

Made by the entrance. Invariant: it is among its sandbox's live connections for as long as it is open; the rate of a
sandbox's requests delays them, it refuses none.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from kennel.gateway.bucket import Bucket
from kennel.gateway.client_link import ClientLink
from kennel.gateway.context import Context
from kennel.gateway.exchange import Exchange
from kennel.gateway.judge import Place
from kennel.gateway.request_reader import Incoming
from kennel.gateway.upstream import Upstream

_KEEPS_HOST = 3.0
"""Seconds for which an idle connection keeps the one to its host for itself."""
_RATE, _SLOW = 8, 1
"""Why reading rests, beside the link's own reasons: the rate is used up; the other side does not keep up."""


class Conversation(ClientLink[Exchange]):
    """One connection, intercepted."""

    def __init__(self, context: Context, place: Place) -> None:
        super().__init__(context.options)
        self.context: Final = context
        self.place: Final = place
        self.upstream: Upstream | None = None
        self._delayed = False
        self._host_paused = 0

    def _serve(self, incoming: Incoming) -> Exchange:
        return Exchange(self, incoming)

    def _arrived(self) -> bool:
        if self.place.sandbox.gone:
            return False
        self.place.sandbox.live.add(self)
        return True

    def _left(self) -> None:
        self.place.sandbox.live.discard(self)
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            self.context.give_idle(self.place.sandbox, self.place.origin, upstream)

    # The sandbox's rate of bytes, both ways.

    def data_received(self, data: bytes) -> None:
        if self.place.sandbox.bytes is not None and (rest := self.place.sandbox.charge(len(data))) > 0:
            self.hold_reading(_RATE, True)
            asyncio.get_running_loop().call_later(rest, self.hold_reading, _RATE, False)
        super().data_received(data)

    def write(self, data: bytes) -> None:
        super().write(data)
        if self.place.sandbox.bytes is not None and (rest := self.place.sandbox.charge(len(data))) > 0:
            self._hold_host(_RATE, True)
            asyncio.get_running_loop().call_later(rest, self._hold_host, _RATE, False)

    def pause_writing(self) -> None:
        self._hold_host(_SLOW, True)

    def resume_writing(self) -> None:
        self._hold_host(_SLOW, False)

    def _hold_host(self, reason: int, on: bool) -> None:
        """Stops or resumes reading from the host: the sandbox does not keep up, or its rate is used up."""
        before, self._host_paused = self._host_paused, self._host_paused | reason if on else self._host_paused & ~reason
        if self.exchange is not None and bool(before) is not bool(self._host_paused):
            self.exchange.pause_server(bool(self._host_paused))

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
        super().overdue(now)

    def _admitted(self) -> bool:
        """Whether the sandbox's rate lets the next request begin; if not, it begins later."""
        bucket, now = self.place.sandbox.requests, time.monotonic()
        if bucket is None:
            rate = self.options.requests_per_second
            bucket = self.place.sandbox.requests = Bucket(rate, 2 * rate, now)
        if bucket.take(now):
            return True
        self.deadline = max(self.deadline, now + self.options.hello_timeout)
        if not self._delayed:
            self._delayed = True
            asyncio.get_running_loop().call_later(max(0.005, bucket.wait()), self._late)
        return False

    def _late(self) -> None:
        self._delayed = False
        self._retry()
