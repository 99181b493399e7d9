"""Owns the rooms' pages: which rooms a project has, as their streams tell, and a room's shell, sandbox and events.

Called by console/app.py. Invariants: looking makes no room; a room is addressed by its stream's last segment, and its
id is what its own events say.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.responses import Response

from kennel.api.answers import now
from kennel.api.console import live
from kennel.api.console.commands import Entry
from kennel.api.console.forms import checked
from kennel.api.console.visit import Visit, get, post
from kennel.api.failures import invalid
from kennel.api.hangup import unless_hung_up
from kennel.api.routes.rooms import RoomExec
from kennel.domain import room
from kennel.domain.event import trusted
from kennel.domain.names import name_of
from kennel.domain.room import RoomState
from kennel.wire.errors import error

PREFIX = "/rooms"
PAGE = 50
_KINDS = (room.ASSIGNED, room.CLEANUP_REQUESTED, room.CLEANED, room.SHELL_SAVED)


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
    """Shows the room of an id that was typed; a new one is made by its first command."""
    room_id = room.check_room_id(visit.form.text("roomId").strip())
    return visit.go(visit.url("rooms", room.stream_of(room_id).removeprefix(f"{PREFIX}/")) + _asked(room_id))


def _asked(room_id: str) -> str:
    return "?" + urlencode({"id": room_id})


async def _room(visit: Visit) -> RoomView:
    """The room of the address: one that exists, or one that its first command would make."""
    segment = visit.request.path_params["segment"]
    stream = f"{PREFIX}/{segment}"
    if await visit.services.streams.head(visit.project, stream) is not None:
        found = await _fold(visit, stream)
        if found is not None:
            return found
    room_id = visit.request.query_params.get("id") or visit.form.text("roomId")
    if room_id and room.stream_of(room.check_room_id(room_id)) == stream:
        return RoomView(room_id, segment, None, None)
    raise error("NOT_FOUND", "There is no such room.", hint="a room is made by its first command: open it by its id")


@get("/rooms/{segment}")
async def page(visit: Visit) -> Response:
    """A room's page."""
    return await _show(visit, await _room(visit), None)


async def _show(visit: Visit, here: RoomView, entry: Entry | None) -> Response:
    lines, head = await live.newest(visit, f"{PREFIX}/{here.segment}")
    return visit.page("room.html", room=here, lines=lines, head=head, entry=entry)


@get("/rooms/{segment}/events")
async def events(visit: Visit) -> Response:
    """The room's stream, live."""
    return await live.follow(visit, f"{PREFIX}/{visit.request.path_params['segment']}")


@post("/rooms/{segment}/exec", "exec")
async def run(visit: Visit) -> Response:
    """Runs a command in the room's shell, making the room on first use."""
    here = await _room(visit)
    body, started = checked(RoomExec, {"cmd": visit.form.text("command")}), now()
    work = visit.services.rooms.exec(visit.who, visit.project, here.room_id, body.cmd)
    outcome, out_of_memory = await unless_hung_up(visit.request, work)
    entry = Entry(body.cmd, started, outcome, out_of_memory)
    return visit.piece("entry.html", entry=entry) if visit.partial else await _show(visit, here, entry)


@post("/rooms/{segment}/cleanup", "lifecycle")
async def cleanup(visit: Visit) -> Response:
    """Destroys the room's sandbox, if the id was typed."""
    here = await _room(visit)
    if visit.form.text("confirm") != here.room_id:
        raise invalid({"confirm": ["type the room's id to clean it up"]})
    complaints = await visit.services.rooms.cleanup(visit.who, visit.project, here.room_id)
    told = "; ".join(complaints) or "The room was cleaned up: its sandbox is gone. A new command makes another."
    return visit.go(visit.url("rooms", here.segment), told)


routes = [listing, enter, page, events, run, cleanup]
