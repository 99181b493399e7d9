# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns the connection pool: one request in, one typed answer or one KennelError out.

Called by every handle of this half. Invariant: nothing is sent twice unless the caller said that repeating it is safe,
and no answer larger than MAX_ANSWER is held. It stands on httpcore2, the pool inside httpx2: redirects, cookies and
decoders are of no use here, and leaving them out saves a tenth of the command line's start.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

import httpcore2

from kennel.sdk._sync.reply import Reply
from kennel.sdk._sync.socket import Socket
from kennel.sdk.answers import body_or_none, decoded, encoded
from kennel.sdk.discovery import Address
from kennel.sdk.failures import BROKEN, lost, worth_repeating
from kennel.sdk.websocket_frames import accepts, new_key
from kennel.wire.errors import KennelError, error, from_wire

T = TypeVar("T")
Headers = dict[bytes | str, bytes | str]

MAX_ANSWER = 256 * 1024 * 1024
"""Bytes of one answer: two outputs of 16 MiB in which each byte took the six of a JSON escape, and some room."""

CONNECT_TIMEOUT = 5.0
KEEP_ALIVE = 3.0
"""Seconds an idle connection is used again: below the server's own 5, so that it never closes one under a request."""

PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 1.6, 1.6, 0.0)
"""Seconds after each attempt of a call that may be repeated: about six in all, twice what a restart takes."""

SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), value)
      for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)) if hasattr(socket, name)),
)  # fmt: skip
"""A machine that vanishes without a word ends a call that has no limit after about 25 s."""


class Transport:
    """Connections to one server, kept alive and shared; open until `close`."""

    def __init__(self, address: Address, timeout: float) -> None:
        self.url = address.url
        self.timeout = timeout
        self._headers: Headers = {"Accept": "application/json", "User-Agent": "kennel-python"}
        if address.api_key:
            self._headers["Authorization"] = f"Bearer {address.api_key}"
        self._pool = httpcore2.ConnectionPool(
            max_connections=None,
            max_keepalive_connections=32,
            keepalive_expiry=KEEP_ALIVE,
            socket_options=SOCKET_OPTIONS,
        )

    def call(
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
        target = self.url + route + (f"?{urlencode(query)}" if query else "")
        headers = dict(self._headers)
        if request_id is not None:
            headers["Idempotency-Key"] = request_id
        content = None
        if body is not None:
            content, headers["Content-Type"] = encoded(body), "application/json"
        wait = None if extra is None else self.timeout + extra
        send = self._persist if repeat or request_id else self._exchange
        raw = send(method, target, headers, content, wait)
        return decoded(raw if shape is not type(None) else b"null", shape)

    def open(
        self,
        route: str,
        *,
        accept: str,
        query: dict[str, str],
        headers: Headers,
        silence: float,
        method: str = "GET",
        body: Any = None,
    ) -> Reply:
        """A good answer whose body is still to be read; any other answer, or none, is raised.

        `silence` is the seconds that may pass without a byte; the answer is to be closed by its reader.
        """
        target = self.url + route + (f"?{urlencode(query)}" if query else "")
        wanted: Headers = {**self._headers, "Accept": accept, **headers}
        limits = {"connect": CONNECT_TIMEOUT, "pool": CONNECT_TIMEOUT, "read": silence, "write": self.timeout}
        content = None
        if body is not None:
            content, wanted["Content-Type"] = encoded(body), "application/json"
        exchange = self._pool.stream(method, target, headers=wanted, content=content, extensions={"timeout": limits})
        try:
            response = exchange.__enter__()
        except BROKEN as failure:
            raise lost(failure, self.url) from failure
        reply = Reply(exchange, response, self.url)
        if response.status in (200, 206):
            return reply
        try:
            raw = self._read(response)
        except BROKEN as failure:
            raise lost(failure, self.url) from failure
        finally:
            reply.close()
        raise from_wire(response.status, body_or_none(raw))

    def send(
        self,
        method: str,
        route: str,
        content: Any,
        *,
        query: dict[str, str],
        request_id: str | None = None,
        extra: float = 0.0,
    ) -> bytes:
        """The body of a good answer to a request whose own is bytes, or an iterator over pieces of them; sent once.

        `extra` seconds are added to the time that may pass without a byte either way.
        """
        target = self.url + route + (f"?{urlencode(query)}" if query else "")
        headers: Headers = {**self._headers, "Content-Type": "application/octet-stream"}
        if request_id is not None:
            headers["Idempotency-Key"] = request_id
        return self._exchange(method, target, headers, content, self.timeout + extra)

    def socket(self, route: str, query: Any, given: Mapping[str, str] | None = None) -> Socket:
        """An open WebSocket; `query` is a dict or pairs, `given` are headers. Whatever else is answered is raised."""
        target = self.url + route + (f"?{urlencode(query)}" if query else "")
        key = new_key()
        words: Headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        headers: Headers = {**dict((given or {}).items()), **self._headers, **words, "Sec-WebSocket-Key": key}
        limits = {"connect": CONNECT_TIMEOUT, "pool": CONNECT_TIMEOUT, "read": self.timeout, "write": self.timeout}
        exchange = self._pool.stream("GET", target, headers=headers, extensions={"timeout": limits})
        try:
            response = exchange.__enter__()
            if response.status == 101:
                answer = next((v for n, v in response.headers if n.lower() == b"sec-websocket-accept"), None)
                if accepts(key, answer):
                    return Socket(exchange, response, self.url)
            raw = b"" if response.status == 101 else self._read(response)
        except BROKEN as failure:
            raise lost(failure, self.url) from failure
        exchange.__exit__(None, None, None)
        raise from_wire(response.status, body_or_none(raw))

    def fetch(
        self, method: str, route: str, headers: dict[str, str], content: bytes | None, timeout: float | None
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Status, headers and body of whatever comes back."""
        wait = self.timeout if timeout is None else timeout
        limits = {"connect": CONNECT_TIMEOUT, "pool": CONNECT_TIMEOUT, "read": wait, "write": wait}
        sent: Headers = {**self._headers, "Accept": "*/*"}
        sent.update(headers.items())
        try:
            with self._pool.stream(
                method, self.url + route, headers=sent, content=content, extensions={"timeout": limits}
            ) as response:
                raw = self._read(response)
        except BROKEN as failure:
            raise lost(failure, self.url) from failure
        return response.status, list(response.headers), raw

    def close(self) -> None:
        """Closes every connection; calls in progress end with CONNECTION_LOST."""
        self._pool.close()

    def _persist(self, method: str, target: str, headers: Headers, content: bytes | None, wait: float | None) -> bytes:
        """The exchange, repeated while the server restarts; if it never answers, the first failure is raised.

        The first, because a connection refused at the end says nothing about the attempts before it.
        """
        first: KennelError | None = None
        for pause in PAUSES:
            try:
                return self._exchange(method, target, headers, content, wait)
            except KennelError as failure:
                if not worth_repeating(failure, first):
                    raise
                first = first or failure
            time.sleep(pause)
        assert first is not None
        raise first

    def _exchange(self, method: str, target: str, headers: Headers, content: bytes | None, wait: float | None) -> bytes:
        """The body of a good answer; any other answer, or none, is raised."""
        limits = {"connect": CONNECT_TIMEOUT, "pool": CONNECT_TIMEOUT, "read": wait, "write": wait}
        try:
            with self._pool.stream(
                method, target, headers=headers, content=content, extensions={"timeout": limits}
            ) as response:
                raw = self._read(response)
        except BROKEN as failure:
            raise lost(failure, self.url) from failure
        if 200 <= response.status < 300:
            return raw
        raise from_wire(response.status, body_or_none(raw))

    def _read(self, response: httpcore2.Response) -> bytes:
        """The whole body, refused once it passes MAX_ANSWER."""
        parts, size = [], 0
        for part in response.iter_stream():
            size += len(part)
            if size > MAX_ANSWER:
                message = f"the server's answer is over {MAX_ANSWER} bytes"
                raise error("PROTOCOL_VIOLATION", message, admitted="unknown")
            parts.append(part)
        return b"".join(parts)
