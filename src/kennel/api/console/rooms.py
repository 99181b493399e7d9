"""Owns the page of a project's rooms, as their streams tell of them, and finding the room that an address means.

Called by console/app.py and by the pages of one room. Invariants: looking makes no room; a room is addressed by its
stream's last segment, and its id is what its own events say.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.responses import Response
from starlette.routing import BaseRoute

from kennel.api.console.visit import Visit, get, post
from kennel.domain import room
from kennel.domain.event import trusted
from kennel.domain.names import name_of, path_of
from kennel.domain.room import RoomState
from kennel.wire.errors import KennelError, error
from kennel.wire.results import SandboxView

PREFIX = "/rooms"
PAGE = 50
_KINDS = (room.OPENED, room.ASSIGNED, room.CLEANUP_REQUESTED, room.CLEANED, room.SHELL_SAVED)


@dataclass(frozen=True, slots=True)
class RoomView:
    """A room: its id, where its page is, its sandbox's name now, where its shell last was."""

    room_id: str
    segment: str
    sandbox: str | None
    cwd: str | None


async def _fold(visit: Visit, stream: str) -> RoomView | None:
    """The room a stream tells of; None when it tells of none."""
    state, room_id, after = RoomState(), None, 0
    while events := await visit.services.streams.read(visit.project, stream, after=after, types=_KINDS, limit=500):
        for event in events:
            state, after = room.evolve(state, event), event.offset
            if trusted(event) and isinstance(event.payload.get("roomId"), str):
                room_id = event.payload["roomId"]
        if len(events) < 500:
            break
    if room_id is None or room.stream_of(room_id) != stream:
        return None
    sandbox = name_of(state.path) if state.path is not None else None
    return RoomView(room_id, stream.removeprefix(f"{PREFIX}/"), sandbox, state.shell.cwd if state.shell else None)


@get("/rooms")
async def listing(visit: Visit) -> Response:
    """The page of all rooms."""
    cursor = visit.request.query_params.get("cursor", "")[:1024]
    paths = await visit.services.streams.paths(visit.project, PREFIX, after=cursor, limit=PAGE)
    found = [await _fold(visit, path) for path in paths if path != PREFIX]
    more = paths[-1] if len(paths) == PAGE else None
    return visit.page("rooms.html", rooms=[one for one in found if one is not None], more=more)


@post("/rooms", "exec")
async def enter(visit: Visit) -> Response:
    """Shows the room of an id that was typed, or of a code that nobody guesses; a new one is made by its first use."""
    room_id = room.check_room_id(visit.form.text("roomId").strip() or f"room-{secrets.token_hex(8)}")
    return visit.go(visit.url("rooms", room.stream_of(room_id).removeprefix(f"{PREFIX}/")) + _asked(room_id))


def _asked(room_id: str) -> str:
    return "?" + urlencode({"id": room_id})


async def _in_memory(visit: Visit, room_id: str, segment: str) -> RoomView | None:
    """A room in use, without reading its stream again; None for one that is not, or whose id the address hides."""
    if room.stream_of(room_id) != f"{PREFIX}/{segment}":
        return None
    try:
        found = await visit.services.rooms.view(visit.project, room_id)
    except KennelError as failure:
        if failure.code != "NOT_FOUND":
            raise
        return None
    return RoomView(found.room_id, segment, name_of(found.sandbox) if found.sandbox else None, found.cwd)


async def found_room(visit: Visit) -> RoomView:
    """The room of the address: one that exists, or one that its first command would make."""
    segment = visit.request.path_params["segment"]
    stream = f"{PREFIX}/{segment}"
    room_id = visit.request.query_params.get("id") or visit.form.text("roomId")
    if room_id and room.stream_of(room.check_room_id(room_id)) != stream:
        room_id = ""
    found = await _in_memory(visit, room_id or segment, segment)
    if found is None and await visit.services.streams.head(visit.project, stream) is not None:
        found = await _fold(visit, stream)
    if found is not None:
        return found
    if room_id:
        return RoomView(room_id, segment, None, None)
    raise error("NOT_FOUND", "There is no such room.", hint="a room is made by its first command: open it by its id")


async def found_box(visit: Visit, here: RoomView) -> SandboxView | None:
    """The room's sandbox; None while it is being made, or is gone."""
    if here.sandbox is None:
        return None
    try:
        return await visit.services.sandboxes.get(visit.project, path_of(here.sandbox))
    except KennelError:
        return None  # the talk is there all the same


routes: list[BaseRoute] = [listing, enter]
