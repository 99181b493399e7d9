"""Owns a room's talk in the console: what was said, what is being said, saying something.

Called by console/app.py and by the rooms' page. Invariants: what a page shows live is what it shows when it is loaded
again; a row is escaped by the server, and what passes by is shown by scripts as text alone; looking makes no room.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from kennel.api.console import live
from kennel.api.console.forms import checked
from kennel.api.console.rendering import render
from kennel.api.console.rooms import PREFIX, RoomView, found_room
from kennel.api.console.visit import Visit, get, post
from kennel.api.event_stream import EventStream
from kennel.api.hangup import unless_hung_up
from kennel.api.room_access import speaker
from kennel.api.routes.rooms import RoomMessage
from kennel.control.room_feed import Passing
from kennel.domain import room, turn
from kennel.domain.event import Event, Gap, trusted

SHOWN = 100
"""Rows of a page; a room keeps at most twice as many messages."""
_LOOKED_AT = 500
_KINDS = (turn.SAID, turn.TURN_ENDED, room.CLEANUP_REQUESTED)


@dataclass(frozen=True, slots=True)
class Said:
    """A row: somebody's message, or how a turn failed (`role` is then `trouble`)."""

    offset: int
    turn: str
    role: str
    name: str
    text: str
    at: str


def said(event: Event) -> Said | None:
    """The row of an event; None for one that has none."""
    if not trusted(event):
        return None
    told = event.payload
    if event.type == turn.SAID:
        role = "agent" if told.get("role") == "agent" else "user"
        name = "model" if role == "agent" else str(told.get("userId") or "somebody")
        return Said(event.offset, str(told.get("turnId", "")), role, name, str(told.get("text", "")), event.created_at)
    if event.type == turn.TURN_ENDED and told.get("outcome") != "replied":
        why = " · ".join(str(told[key]) for key in ("error", "code") if told.get(key)) or str(told.get("outcome"))
        return Said(event.offset, str(told.get("turnId", "")), "trouble", "", why, event.created_at)
    return None


async def latest(visit: Visit, here: RoomView) -> tuple[list[Said], int]:
    """The last rows since the room was last cleaned, the oldest first, and the stream's last offset."""
    stream = f"{PREFIX}/{here.segment}"
    head = await visit.services.streams.head(visit.project, stream)
    if head is None:
        return [], 0
    rows: list[Said] = []
    begin = max(0, head - _LOOKED_AT)
    events = await visit.services.streams.read(
        visit.project, stream, after=begin, before=head + 1, types=_KINDS, limit=_LOOKED_AT
    )
    for event in events:
        if event.type == room.CLEANUP_REQUESTED and trusted(event):
            rows.clear()
        elif (row := said(event)) is not None:
            rows.append(row)
    return rows[-SHOWN:], head


@get("/rooms/{segment}/talk", link="read")
async def follow(visit: Visit) -> Response:
    """The talk, live: `row` for what is kept, `delta`, `command`, `queue` and `presence` for what passes by."""
    return EventStream(live.messages(_items(visit, await found_room(visit)), _told))


async def _items(visit: Visit, here: RoomView) -> AsyncIterator[Event | Gap | Passing]:
    await live.there(visit, f"{PREFIX}/{here.segment}")
    items = visit.services.rooms.follow(visit.who, visit.project, here.room_id, after=live.since(visit))
    try:
        async for item in items:
            yield item
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()


def _told(item: Event | Passing) -> bytes:
    if isinstance(item, Passing):
        return live.sent(item.payload, event=item.kind)
    row = said(item)
    words: dict[str, Any] = {"type": item.type}
    if item.type == turn.COMMAND_STARTED and trusted(item):
        words |= {"turn": str(item.payload.get("turnId", "")), "command": str(item.payload.get("commandId", ""))}
    if row is not None:
        words |= {"turn": row.turn, "role": row.role, "html": render("said.html", one=row)}
    return live.sent(words, event="row", last_id=item.offset)


@post("/rooms/{segment}/say", "exec", link="exec")
async def say(visit: Visit) -> Response:
    """Says something; the answer comes by the talk, which a page without scripts shows when it is loaded again."""
    here = await found_room(visit)
    body = checked(RoomMessage, {"text": visit.form.text("text"), "userId": visit.form.text("userId").strip()})
    name = speaker(visit.who, body.user_id)
    work = visit.services.rooms.say(visit.who, visit.project, here.room_id, body.text, name)
    await unless_hung_up(visit.request, work)
    return Response(status_code=204) if visit.partial else visit.go(visit.url("rooms", here.segment))


routes: list[BaseRoute] = [follow, say]
