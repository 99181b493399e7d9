"""Owns following a stream in a browser: its newest rows as HTML, then each new one as a Server-Sent Event.

Called by the sandbox, room and stream pages. Invariants: a row is a rendered, escaped template sent as one JSON string,
so no byte of an event can end a message early; a stream to a browser ends after LIFE_SECONDS, so that who may follow is
asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

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
    after = since(visit)
    if not patient and await visit.services.streams.head(visit.project, path) is None:
        raise error("STREAM_NOT_FOUND", f"There is no stream {path}.")
    return EventStream(messages(_events(visit, path, after), _row))


def since(visit: Visit) -> int:
    """The offset that a page has seen: `Last-Event-ID`, else `after`."""
    asked = visit.request.headers.get("last-event-id") or visit.request.query_params.get("after", "0")
    return int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 16 else 0


async def there(visit: Visit, path: str) -> None:
    """Returns when the stream has its first event: looking does not make it."""
    while await visit.services.streams.head(visit.project, path) is None:
        await asyncio.sleep(PAUSE_SECONDS)


async def _events(visit: Visit, path: str, after: int) -> AsyncIterator[Event | Gap]:
    await there(visit, path)
    events = visit.services.streams.follow(visit.project, path, after=after)
    try:
        async for event in events:
            yield event
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


def _row(event: Event) -> bytes:
    return sent(render("event.html", line=line(event), fresh=True), event="row", last_id=event.offset)


def sent(value: Any, *, event: str, last_id: int | None = None) -> bytes:
    """One message of a stream to a page: a value as JSON on one line."""
    return message(_encoder.encode(value), event=event, last_id=last_id)


async def messages(items: AsyncIterator[Any], told: Callable[[Any], bytes]) -> AsyncGenerator[bytes, None]:
    """What a page that follows `items` is sent, until its time is over or it fell behind."""
    deadline = asyncio.get_running_loop().time() + LIFE_SECONDS
    try:
        yield b"retry: 1000\n\n"
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    item = await anext(items, None)
            except TimeoutError:
                return
            if item is None or isinstance(item, Gap):
                return  # the browser comes back with the last offset it saw
            yield told(item)
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()
