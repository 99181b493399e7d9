"""Owns `GET /api/rooms/{roomId}/events`: a room's stream live, with what passes by between its events.

Included by routes/rooms.py. Invariants: a numbered message is an event of the room's stream, its id the offset to go on
from; what passes by has no number and is gone when it is missed; looking makes no room.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from kennel.api.body import StrictRoute
from kennel.api.event_stream import EventStream, message
from kennel.api.openapi import answers
from kennel.api.room_access import OF_ROOM, Looker, RoomId, room_id_of
from kennel.api.services import services_of
from kennel.control.room_feed import Passing
from kennel.domain.event import Event, Gap

router = APIRouter(route_class=StrictRoute)

MAX_OFFSET = 2**53
_encoder = msgspec.json.Encoder()

_MESSAGE = {"type": "object", "properties": {name: {"type": "string"} for name in ("id", "event", "data")}}
_EVENTS = answers(200, None, *OF_ROOM, "STREAM_NOT_FOUND")
_EVENTS[200]["content"] = {"text/event-stream": {"schema": _MESSAGE}}


@router.get("/{roomId:segment}/events", responses=_EVENTS)
async def follow(
    request: Request,
    room_id: RoomId,
    caller: Looker,
    after: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
    last_event_id: Annotated[int, Header(ge=0, le=MAX_OFFSET)] = 0,
) -> Response:
    """Server-Sent Events: the room's events after `Last-Event-ID` (or `after`), then live.

    Between them come messages without an id: `delta` (a piece of the model's answer: `turnId`, `round`, `at` in
    characters, `text`; `end` when it is over), `queue` (turns and commands that run or wait), `command` (`waiting`,
    `running` and whether the sandbox wakes for it, `finished`), `presence`. `gap` says that the caller fell behind.
    """
    rooms, room = services_of(request).rooms, room_id_of(room_id)
    await rooms.head(caller.project, room)  # an unknown room is a 404, not a stream that breaks
    return EventStream(_messages(rooms.follow(caller.who, caller.project, room, after=last_event_id or after)))


async def _messages(items: AsyncIterator[Event | Gap | Passing]) -> AsyncIterator[bytes]:
    try:
        async for item in items:
            if isinstance(item, Event):
                yield message(_encoder.encode(item), last_id=item.offset)
            elif isinstance(item, Gap):
                yield message(_encoder.encode(item), event="gap")
            else:
                yield message(_encoder.encode(item.payload), event=item.kind)
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()
