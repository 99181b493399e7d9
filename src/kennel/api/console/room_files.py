"""Owns the panel of a room's files: the directory its shell is in, as a list beside the talk.

Called by the room's page, and by that page's script when a command has ended. Invariants: looking wakes nothing, keeps
nothing awake and never waits long for a sandbox; a name is text; whoever may not open the files' page sees no list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from kennel.api.console.file_place import HOME, Place
from kennel.api.console.rooms import RoomView, found_box, found_room
from kennel.api.console.visit import Visit, get, post
from kennel.domain.file import Entry, check_path
from kennel.domain.names import path_of
from kennel.wire.errors import KennelError, error
from kennel.wire.results import SandboxView

MOST = 100
"""Entries of a list: the panel is a glance, each command sends it to everybody in the room; the page has the rest."""
PATIENCE_SECONDS = 2.0
"""How long a sandbox may take to answer; a list of 100 takes a few milliseconds, and the talk must not wait for it."""


def _place(here: RoomView) -> Place:
    """Where the room's shell last was."""
    try:
        return Place(check_path((here.cwd or "").encode("utf-8", "surrogatepass")))
    except KennelError:
        return Place(HOME)


async def shelf(visit: Visit, here: RoomView, box: SandboxView | None) -> dict[str, Any]:
    """What the panel shows: `rows`, or why there are none (`trouble`; neither while the sandbox does not run)."""
    place = _place(here)
    told: dict[str, Any] = {"place": place, "shelf": None, "more": False, "trouble": None}
    if box is None or not box.running or visit.services.files is None or not visit.may("files"):
        return told
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            found = await visit.services.files.glance(visit.project, box.path, place.path, MOST)
    except TimeoutError as late:
        return {**told, "trouble": late.message if isinstance(late, KennelError) else "The sandbox does not answer."}
    except KennelError as failure:
        return {**told, "trouble": failure.message}
    return told if found is None else {**told, "shelf": _rows(place, found[0]), "more": found[1]}


def _rows(place: Place, entries: Sequence[Entry]) -> list[Place]:
    """Directories first."""
    rows = [place.below(entry.name, entry.facts) for entry in entries]
    return sorted(rows, key=lambda row: row.facts is None or row.facts.type != "directory")


async def _piece(visit: Visit, here: RoomView) -> Response:
    box = await found_box(visit, here)
    return visit.piece("room-files.html", room=here, box=box, **await shelf(visit, here, box))


@get("/rooms/{segment}/files", "files", link="files")
async def panel(visit: Visit) -> Response:
    """The panel alone."""
    return await _piece(visit, await found_room(visit))


@post("/rooms/{segment}/files/wake", "files", link="files")
async def wake(visit: Visit) -> Response:
    """Starts the room's sandbox, so that it can be looked into."""
    here = await found_room(visit)
    if here.sandbox is None:
        raise error("NOT_FOUND", "This room has no sandbox yet.", admitted="no")
    await visit.services.sandboxes.start(visit.who, visit.project, path_of(here.sandbox))
    return await _piece(visit, here) if visit.partial else visit.go(visit.url("rooms", here.segment))


routes: list[BaseRoute] = [panel, wake]
