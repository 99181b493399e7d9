"""Owns Server-Sent Events: an async iterator as a response that keeps the line alive and ends with the caller.

Called by the routes that follow something. Invariants: nothing is produced faster than the caller takes it; when the
caller hangs up the iterator is closed at once, however quiet it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kennel.api.hangup import unless_hung_up
from kennel.wire.errors import KennelError

HEARTBEAT = 15.0
"""Seconds of silence after which a comment is sent, so that proxies keep the connection."""
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


def message(data: bytes, *, event: str | None = None, last_id: int | None = None) -> bytes:
    """One message; `data` is a single line (JSON)."""
    head = (f"event: {event}\n" if event else "") + (f"id: {last_id}\n" if last_id is not None else "")
    return head.encode() + b"data: " + data + b"\n\n"


class EventStream(Response):
    """Streams `messages` (see `message`) until they end or the caller leaves; `heartbeat` None keeps silent.

    `farewell` is the last message when the server ends it.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        messages: AsyncIterator[bytes],
        *,
        heartbeat: float | None = HEARTBEAT,
        farewell: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(headers={**_HEADERS, **(headers or {})}, media_type=self.media_type)
        del self.headers["content-length"]
        self._messages = messages
        self._heartbeat = heartbeat
        self._farewell = farewell
        self._ending = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        _open.add(self)
        try:
            await unless_hung_up(Request(scope, receive), self._pump(send))
        except KennelError as failure:
            if failure.code != "OPERATION_INTERRUPTED":
                raise
            return
        finally:
            _open.discard(self)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(self, send: Send) -> None:
        messages = self._messages
        pending: asyncio.Task[bytes | None] | None = None
        ending = asyncio.create_task(self._ending.wait())
        try:
            while True:
                pending = pending or asyncio.create_task(_next(messages))
                # A timeout around the iterator itself would cancel, and so end, it.
                await asyncio.wait({pending, ending}, timeout=self._heartbeat, return_when=asyncio.FIRST_COMPLETED)
                if ending.done():
                    if self._farewell:
                        await send({"type": "http.response.body", "body": self._farewell, "more_body": True})
                    return
                body: bytes | None = b": alive\n\n"
                if pending.done():
                    body, pending = pending.result(), None
                    if body is None:
                        return
                await send({"type": "http.response.body", "body": body, "more_body": True})
        finally:
            ending.cancel()
            if pending is not None:
                pending.cancel()
                await asyncio.wait({pending})
            close = getattr(messages, "aclose", None)
            if close is not None:
                await close()


_open: set[EventStream] = set()


def end_all() -> None:
    """Ends every stream that is open, as a service on its way out must: its server waits for them for seconds."""
    for stream in _open:
        stream._ending.set()


async def _next(messages: AsyncIterator[bytes]) -> bytes | None:
    """The next message, None at the end."""
    return await anext(messages, None)
