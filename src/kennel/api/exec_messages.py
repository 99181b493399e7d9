"""Owns how a followed command looks on the wire: Server-Sent Events, and the frames of a WebSocket.

Called by the routes of exec. Invariant: bytes are exact in base64 and in frames; as text, bytes that are no UTF-8
become U+FFFD and the event says `lossy`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec

from kennel.api.answers import now
from kennel.api.event_stream import message
from kennel.control.followed import StreamEvent
from kennel.wire.errors import error

STDIN, STDOUT, STDERR = b"\0", b"\1", b"\2"
"""The first byte of a binary message says which stream the rest belongs to."""
_encoder = msgspec.json.Encoder()
FAREWELL = message(
    _encoder.encode(error("OPERATION_INTERRUPTED", "the server is being stopped", admitted="unknown").to_wire()),
    event="error",
)
"""The last event of a stream that the server ends: never an end without `exit` or `error`."""


async def exec_messages(events: AsyncIterator[StreamEvent], encoding: str) -> AsyncGenerator[bytes, None]:
    """Server-Sent Events; the id is the event's number."""
    try:
        async for event in events:
            body = event.body if event.kind not in ("stdout", "stderr") else output_body(event.data, encoding)
            if event.kind == "start":
                body = {**body, "timestamp": now()}
            yield message(_encoder.encode(body), event=event.kind, last_id=event.sequence)
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


def output_body(data: bytes, encoding: str) -> dict[str, Any]:
    """A piece of output as JSON, for an encoder that writes bytes as base64."""
    if encoding == "base64":
        return {"data": data, "encoding": "base64"}
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data": data.decode(errors="replace"), "lossy": True}


def exec_frame(event: StreamEvent) -> bytes | dict[str, Any]:
    """A message of the WebSocket: output in binary, everything else as JSON."""
    if event.kind in ("stdout", "stderr"):
        return (STDOUT if event.kind == "stdout" else STDERR) + event.data
    more = {"timestamp": now()} if event.kind == "start" else {}
    return {"type": event.kind, **event.body, **more}
