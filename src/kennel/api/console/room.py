"""Owns a room's page: its talk, people, waiting approvals, shell, terminal, sandbox and events.

Called by console/app.py. Invariants: looking makes no room, wakes nothing and joins nobody.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from kennel.api.answers import now
from kennel.api.console import live
from kennel.api.console.approvals import mark, waiting
from kennel.api.console.commands import Entry
from kennel.api.console.forms import checked
from kennel.api.console.people import people
from kennel.api.console.room_files import shelf
from kennel.api.console.rooms import PREFIX, RoomView, found_box, found_room
from kennel.api.console.talk import latest
from kennel.api.console.terminals import open_ones
from kennel.api.console.visit import Visit, get, post
from kennel.api.failures import invalid
from kennel.api.hangup import unless_hung_up
from kennel.api.room_access import speaker
from kennel.api.routes.rooms import RoomExec
from kennel.domain.names import path_of
from kennel.domain.process import TerminalFacts
from kennel.wire.errors import KennelError
from kennel.wire.results import SandboxView


@get("/rooms/{segment}", link="read")
async def page(visit: Visit) -> Response:
    """A room's page."""
    return await _show(visit, await found_room(visit), None)


async def _box(visit: Visit, here: RoomView) -> tuple[SandboxView | None, list[TerminalFacts]]:
    """The room's sandbox and its open terminals; None while it is being made, or is gone."""
    view = await found_box(visit, here)
    shown = visit.may("exec") or visit.guest is not None  # an observer watches
    if view is None or not view.running or not shown or visit.services.running is None:
        return view, []
    try:
        return view, await open_ones(visit, view.path)
    except KennelError:
        return None, []


async def _held(visit: Visit, here: RoomView) -> dict[str, Any]:
    seen = here.sandbox is not None and visit.guest is None  # what waits is for those who may answer it
    rows = await waiting(visit, path_of(here.sandbox or "")) if seen else []
    return {"waiting": rows, "mark": mark(rows)}


async def _show(visit: Visit, here: RoomView, entry: Entry | None) -> Response:
    lines, head = await live.newest(visit, f"{PREFIX}/{here.segment}")
    rows, seen = await latest(visit, here)
    box, terminals = await _box(visit, here)
    return visit.page(
        "room.html", lines=lines, head=head, entry=entry, rows=rows, seen=seen, box=box, terminals=terminals,
        **await _held(visit, here), **await people(visit, here), **await shelf(visit, here, box),
    )  # fmt: skip


@get("/rooms/{segment}/events", link="read")
async def events(visit: Visit) -> Response:
    """The room's stream, live."""
    return await live.follow(visit, f"{PREFIX}/{visit.request.path_params['segment']}")


@get("/rooms/{segment}/waiting")
async def held(visit: Visit) -> Response:
    """What of the room's sandbox waits for a person."""
    here = await found_room(visit)
    found = await _held(visit, here)
    if visit.request.query_params.get("seen") == found["mark"]:
        return Response(status_code=204)
    return visit.piece("waiting.html", room=here, **found)


@get("/rooms/{segment}/place", link="read")
async def place(visit: Visit) -> Response:
    """The panel of the room's sandbox, which the page asks for when that changes."""
    here = await found_room(visit)
    box, _ = await _box(visit, here)
    return visit.piece("place.html", room=here, box=box)


@get("/rooms/{segment}/screen", "exec", link="read")
async def screen(visit: Visit) -> Response:
    """The terminals of the room's sandbox, for a page that has none yet, or those of one before."""
    here = await found_room(visit)
    box, terminals = await _box(visit, here)
    if box is None or box.name == visit.request.query_params.get("has"):
        return Response(status_code=204)
    return visit.piece("room-screen.html", room=here, box=box, terminals=terminals)


@post("/rooms/{segment}/exec", "exec", link="exec")
async def run(visit: Visit) -> Response:
    """Runs a command in the room's shell, making the room on first use."""
    here = await found_room(visit)
    body, started = checked(RoomExec, {"cmd": visit.form.text("command")}), now()
    work = visit.services.rooms.exec(visit.who, visit.project, here.room_id, body.cmd, speaker(visit.who, None))
    outcome, out_of_memory = await unless_hung_up(visit.request, work)
    entry = Entry(body.cmd, started, outcome, out_of_memory)
    return visit.piece("entry.html", entry=entry) if visit.partial else await _show(visit, here, entry)


@post("/rooms/{segment}/cleanup", "lifecycle")
async def cleanup(visit: Visit) -> Response:
    """Destroys the room's sandbox, if the id was typed."""
    here = await found_room(visit)
    if visit.form.text("confirm") != here.room_id:
        raise invalid({"confirm": ["type the room's id to clean it up"]})
    complaints = await visit.services.rooms.cleanup(visit.who, visit.project, here.room_id)
    told = "; ".join(complaints) or "The room was cleaned up: its sandbox is gone. A new command makes another."
    return visit.go(visit.url("rooms", here.segment), told)


routes: list[BaseRoute] = [page, events, held, place, screen, run, cleanup]
