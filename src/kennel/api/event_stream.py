"""Owns Server-Sent Events: an async iterator as a response that keeps the line alive and ends with the caller.

Called by the routes that follow something. Invariants: nothing is produced faster than the caller takes it; when the
caller hangs up the iterator is closed at once, however quiet it was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

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
        """Sends until the messages end or the server does; the heart beats beside them, never into one."""
        line = asyncio.Lock()
        sent = [time.monotonic()]

        async def emit(body: bytes) -> None:
            async with line:
                await send({"type": "http.response.body", "body": body, "more_body": True})
                sent[0] = time.monotonic()

        tasks = [asyncio.create_task(self._all(emit)), asyncio.create_task(self._ending.wait())]
        if self._heartbeat is not None:
            tasks.append(asyncio.create_task(_beat(emit, sent, self._heartbeat)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if self._ending.is_set() and self._farewell:
                await emit(self._farewell)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            close = getattr(self._messages, "aclose", None)
            if close is not None:
                await close()

    async def _all(self, emit: Emit) -> bool:
        async for body in self._messages:
            await emit(body)
        return True


Emit = Callable[[bytes], Coroutine[Any, Any, None]]


async def _beat(emit: Emit, sent: list[float], pause: float) -> bool:
    """A comment after each `pause` of silence, so that proxies keep the connection."""
    while True:
        await asyncio.sleep(max(0.01, sent[0] + pause - time.monotonic()))
        if time.monotonic() - sent[0] >= pause:
            await emit(b": alive\n\n")


_open: set[EventStream] = set()


def end_all() -> None:
    """Ends every stream that is open, as a service on its way out must: its server waits for them for seconds."""
    for stream in _open:
        stream._ending.set()
