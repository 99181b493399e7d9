"""Owns the connection pool: one request in, one typed answer or one KennelError out.

Called by every handle of this half. Invariant: nothing is sent twice unless the caller said that repeating it is safe,
and no answer larger than MAX_ANSWER is held.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import httpx2
import msgspec

from kennel.sdk.answers import body_or_none, decoded
from kennel.sdk.discovery import Address
from kennel.sdk.failures import lost, worth_repeating
from kennel.wire.errors import KennelError, error, from_wire

T = TypeVar("T")

MAX_ANSWER = 256 * 1024 * 1024
"""Bytes of one answer: two outputs of 16 MiB in which each byte took the six of a JSON escape, and some room."""

CONNECT_TIMEOUT = 5.0
KEEP_ALIVE = 3.0
"""Seconds an idle connection is used again: below the server's own 5, so that it never closes one under a request."""

PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 1.6, 1.6)
"""Seconds between attempts of a call that may be repeated; about the 6 that a restart of the server takes at most."""

SOCKET_OPTIONS = (
    [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    ]
    if hasattr(socket, "TCP_KEEPIDLE")
    else [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
)
"""A machine that vanishes without a word ends a call without limit after about 25 s."""


class AsyncTransport:
    """Connections to one server, kept alive and shared; open until `close`."""

    def __init__(self, address: Address, timeout: float) -> None:
        self.url = address.url
        self.timeout = timeout
        # Loading certificates takes 20 ms that a plain connection need not pay.
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if address.url.startswith("http:") else True
        headers = {"Accept": "application/json", "User-Agent": "kennel-python"}
        if address.api_key:
            headers["Authorization"] = f"Bearer {address.api_key}"
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=KEEP_ALIVE)
        wire = httpx2.AsyncHTTPTransport(verify=verify, limits=limits, socket_options=SOCKET_OPTIONS)
        self._http = httpx2.AsyncClient(headers=headers, transport=wire, follow_redirects=False)

    async def call(
        self,
        method: str,
        route: str,
        shape: type[T],
        *,
        body: Any = None,
        query: dict[str, str] | None = None,
        request_id: str | None = None,
        extra: float | None = 0.0,
        repeat: bool = False,
    ) -> T:
        """The answer as `shape`. `extra` seconds are added to the time allowed, None takes the limit away.

        `repeat` says that a lost call may be sent again; `request_id` makes that true for a call that creates.
        """
        headers = {} if request_id is None else {"Idempotency-Key": request_id}
        content = None
        if body is not None:
            content, headers["Content-Type"] = msgspec.json.encode(body), "application/json"
        wait = None if extra is None else self.timeout + extra
        limits = httpx2.Timeout(wait, connect=CONNECT_TIMEOUT, pool=CONNECT_TIMEOUT)
        request = self._http.build_request(
            method, self.url + route, content=content, params=query, headers=headers, timeout=limits
        )
        raw = await (self._persist(request) if repeat or request_id else self._exchange(request))
        return decoded(raw, shape) if shape is not type(None) else decoded(b"null", shape)

    async def events(self, route: str, query: dict[str, str]) -> AsyncIterator[httpx2.ServerSentEvent]:
        """Server-sent events of a route until the server ends them."""
        headers = {"Accept": "text/event-stream"}
        limits = httpx2.Timeout(None, connect=CONNECT_TIMEOUT, pool=CONNECT_TIMEOUT)
        request = self._http.build_request("GET", self.url + route, params=query, headers=headers, timeout=limits)
        try:
            response = await self._http.send(request, stream=True)
            try:
                if not response.is_success:
                    raise from_wire(response.status_code, body_or_none(await self._read(response)))
                async for event in httpx2.EventSource(response):
                    yield event
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.StreamError) as failure:
            raise lost(failure, self.url) from failure

    async def close(self) -> None:
        """Closes every connection; calls in progress end with CONNECTION_LOST."""
        await self._http.aclose()

    async def _persist(self, request: httpx2.Request) -> bytes:
        """The exchange, repeated while the server restarts; the first failure is the one raised."""
        first: KennelError | None = None
        for pause in PAUSES:
            try:
                return await self._exchange(request)
            except KennelError as failure:
                if not worth_repeating(failure, first):
                    raise
                first = first or failure
            await asyncio.sleep(pause)
        try:
            return await self._exchange(request)
        except KennelError as failure:
            # A refused connection now says nothing about the attempts before it.
            raise first if first and worth_repeating(failure, first) else failure from None

    async def _exchange(self, request: httpx2.Request) -> bytes:
        """The body of a good answer; any other answer, or none, is raised."""
        try:
            response = await self._http.send(request, stream=True)
            try:
                raw = await self._read(response)
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.StreamError) as failure:
            raise lost(failure, self.url) from failure
        if response.is_success:
            return raw
        raise from_wire(response.status_code, body_or_none(raw))

    async def _read(self, response: httpx2.Response) -> bytes:
        """The whole body, refused once it passes MAX_ANSWER."""
        parts, size = [], 0
        async for part in response.aiter_bytes():
            size += len(part)
            if size > MAX_ANSWER:
                message = f"the server's answer is over {MAX_ANSWER} bytes"
                raise error("PROTOCOL_VIOLATION", message, admitted="unknown")
            parts.append(part)
        return b"".join(parts)
