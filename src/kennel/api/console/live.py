"""Owns following a stream in a browser: its newest rows as HTML, then each new one as a Server-Sent Event.

Called by the sandbox, room and stream pages. Invariants: a row is a rendered, escaped template sent as one JSON string,
so no byte of an event can end a message early; a stream to a browser ends after LIFE_SECONDS, so that who may follow is
asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.responses import Response

from kennel.api.console.events import Line, line
from kennel.api.console.rendering import render
from kennel.api.console.visit import Visit
from kennel.api.event_stream import EventStream, message
from kennel.domain.event import Event, Gap
from kennel.wire.errors import error

LIFE_SECONDS = 240.0
PAUSE_SECONDS = 0.5
"""Between two looks for a stream that is not there yet."""
PAGE = 50
_encoder = msgspec.json.Encoder()


async def newest(visit: Visit, path: str, *, before: int | None = None) -> tuple[list[Line], int]:
    """Up to PAGE rows before an offset (else the last ones), newest first, and the stream's last offset; 0 for none."""
    streams = visit.services.streams
    head = await streams.head(visit.project, path)
    if head is None:
        return [], 0
    end = head + 1 if before is None else min(before, head + 1)
    found = await streams.read(visit.project, path, after=max(0, end - 1 - PAGE), before=end, limit=PAGE)
    return [line(event) for event in reversed(found)], head


async def follow(visit: Visit, path: str, *, patient: bool = False) -> Response:
    """Server-Sent Events `row` from after `Last-Event-ID` (else `after`) on; STREAM_NOT_FOUND unless it is `patient`.

    Who is patient waits for the stream's first event: looking does not make it.
    """
    asked = visit.request.headers.get("last-event-id") or visit.request.query_params.get("after", "0")
    after = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 16 else 0
    if not patient and await visit.services.streams.head(visit.project, path) is None:
        raise error("STREAM_NOT_FOUND", f"There is no stream {path}.")
    return EventStream(_messages(_events(visit, path, after)))


async def _events(visit: Visit, path: str, after: int) -> AsyncIterator[Event | Gap]:
    while await visit.services.streams.head(visit.project, path) is None:
        await asyncio.sleep(PAUSE_SECONDS)
    events = visit.services.streams.follow(visit.project, path, after=after)
    try:
        async for event in events:
            yield event
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


async def _messages(events: AsyncIterator[Event | Gap]) -> AsyncIterator[bytes]:
    deadline = asyncio.get_running_loop().time() + LIFE_SECONDS
    try:
        yield b"retry: 1000\n\n"
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    event = await anext(events, None)
            except TimeoutError:
                return
            if event is None or isinstance(event, Gap):
                return  # the browser comes back with the last offset it saw
            row = render("event.html", line=line(event), fresh=True)
            yield message(_encoder.encode(row), event="row", last_id=event.offset)
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
