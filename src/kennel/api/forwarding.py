"""Owns passing one HTTP request on to a server inside a sandbox, and its answer back, byte by byte as they come.

Called by the proxy route. Invariants: no key, no cookie of Kennel's own and no hop-by-hop header crosses, in either
direction; what the sandbox answers is parsed strictly and bounded; redirects are passed, never followed; nothing of it
may run as a page of this API's origin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import h11
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from kennel.domain.preview import OWN_COOKIE
from kennel.ports.processes import Wire
from kennel.wire.errors import KennelError, error

MAX_HEAD = 64 * 1024
_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding"
    b" upgrade".split()
)
_NEVER = frozenset((b"authorization", b"x-kennel-room-link", b"x-forwarded-host", b"x-forwarded-proto", b"expect"))
_FENCE = (b"content-security-policy", b"sandbox allow-scripts allow-forms allow-popups allow-modals")
"""A page served below the API's origin is nobody's: it reads no cookie and calls no console."""

Headers = list[tuple[bytes, bytes]]


def outward(scope: Scope, prefix: str) -> Headers:
    """A request's headers as the server in the sandbox sees them; `Host` is the one the caller used."""
    named = _connection_words(scope["headers"])
    found: Headers = []
    for name, value in scope["headers"]:
        if name in _HOP or name in _NEVER or name in named:
            continue
        if name == b"cookie":
            value = _cookies(value)
            if not value:
                continue
        found.append((name, value))
    host = next((value for name, value in scope["headers"] if name == b"host"), b"localhost")
    scheme = "https" if scope["scheme"] in ("https", "wss") else "http"
    found += [(b"x-forwarded-host", host), (b"x-forwarded-proto", scheme.encode())]
    return [*found, (b"x-forwarded-prefix", prefix.encode("latin-1", "replace"))]


def _connection_words(headers: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    return {
        word.strip().lower() for name, value in headers if name.lower() == b"connection" for word in value.split(b",")
    }


def _cookies(value: bytes) -> bytes:
    pairs = [pair.strip() for pair in value.split(b";")]
    return b"; ".join(pair for pair in pairs if pair and not pair.lower().startswith(OWN_COOKIE))


def inward(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """An answer's headers as the caller sees them."""
    headers = list(headers)
    named = _connection_words(headers)
    found = [
        (name, value)
        for name, value in headers
        if name not in _HOP
        and name != b"date"  # this server adds its own
        and name not in named
        and not (name == b"set-cookie" and value.strip().lower().startswith(OWN_COOKIE))
    ]
    return [*found, _FENCE]


class Forwarding:
    """One exchange over one connection to the sandbox."""

    def __init__(self, wire: Wire, target: bytes, prefix: str) -> None:
        self._wire = wire
        self._target = target
        self._prefix = prefix
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._left = asyncio.Event()

    async def run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The whole exchange. SERVICE_NOT_RESPONDING while nothing was sent back; afterwards the answer is cut."""
        sending = asyncio.create_task(self._send_request(scope, receive))
        answering = asyncio.create_task(self._answer(send))
        leaving = asyncio.create_task(self._left.wait())
        tasks = {sending, answering, leaving}
        try:
            while True:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if answering in done or leaving in done:
                    break
                # The request is sent, or the server closed its ears: its answer counts either way.
                tasks.discard(sending)
            if answering.done():
                answering.result()
        finally:
            for task in (sending, answering, leaving):
                task.cancel()
            await asyncio.gather(sending, answering, leaving, return_exceptions=True)

    async def _send_request(self, scope: Scope, receive: Receive) -> None:
        headers = outward(scope, self._prefix)
        lengths = {value for name, value in headers if name == b"content-length"}
        chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        if chunked and not lengths:
            headers.append((b"transfer-encoding", b"chunked"))
        try:
            head = h11.Request(
                method=scope["method"], target=self._target, headers=[*headers, (b"connection", b"close")]
            )
            await self._wire.write(self._http.send(head) or b"")
            while (message := await self._next(receive)) is not None:
                if body := message.get("body", b""):
                    await self._wire.write(self._http.send(h11.Data(data=body)) or b"")
                if not message.get("more_body", False):
                    break
            else:
                return
            await self._wire.write(self._http.send(h11.EndOfMessage()) or b"")
        except h11.LocalProtocolError as fault:
            raise error("VALIDATION_FAILED", f"this request cannot be passed on: {fault}", admitted="no") from None
        while await self._next(receive) is not None:
            continue

    async def _next(self, receive: Receive) -> Message | None:
        """The next part of the request; None when the caller left."""
        try:
            message = await receive()
        except ClientDisconnect:
            message = {"type": "http.disconnect"}
        if message["type"] == "http.disconnect":
            self._left.set()
            return None
        return message

    async def _answer(self, send: Send) -> None:
        begun = False
        try:
            while True:
                event = await self._event()
                if isinstance(event, h11.InformationalResponse):
                    if event.status_code == 101:
                        raise h11.RemoteProtocolError("it switches to another protocol unasked")
                elif isinstance(event, h11.Response):
                    head = inward((bytes(name), bytes(value)) for name, value in event.headers)
                    begun = True
                    await send({"type": "http.response.start", "status": event.status_code, "headers": head})
                elif isinstance(event, h11.Data):
                    await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
                else:
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                    return
        except h11.RemoteProtocolError as fault:
            if begun:
                raise
            raise error("SERVICE_NOT_RESPONDING", f"the server's answer is no HTTP: {fault}", admitted="yes") from None
        except KennelError as failure:
            if begun:
                raise ConnectionAbortedError(failure.code) from failure
            raise

    async def _event(self) -> h11.Event:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                data = await self._wire.read()
                self._http.receive_data(data)
            elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                raise h11.RemoteProtocolError("it closed without an answer")
            else:
                assert not isinstance(event, type)
                return event
