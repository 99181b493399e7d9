"""Owns a sandbox's page: its state, its figures, its events live.

Called by console/app.py. Invariants: looking wakes nothing; a name that was never created is a 404 that teaches the
next step and creates nothing, its stream included.
"""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from kennel.api.console import live
from kennel.api.console.navigation import tabs
from kennel.api.console.overview import figures
from kennel.api.console.visit import Visit, get
from kennel.domain.instance_type import INSTANCE_TYPES
from kennel.domain.names import KNOWN_NAME, path_of
from kennel.wire.errors import error
from kennel.wire.results import SandboxView

_KNOWN = re.compile(KNOWN_NAME)
_LIVES = ("created", "running", "stopped")
VERBS = (
    ("start", "Start", ("created", "stopped"), "Boots it now rather than at the first command."),
    ("sleep", "Sleep", ("running",), "Stops it; the disk stays. Work in progress gets ten seconds."),
    ("restart", "Restart", ("running",), "Sleep, then start."),
    ("renew", "Renew", ("running",), "Starts the idle time over."),
    ("kill", "Kill", ("running",), "Stops it at once, whatever runs; the disk stays as it is."),
)
"""Each verb with its label, the states that allow it, and what it does."""


def path(visit: Visit) -> str:
    """The sandbox's path; SANDBOX_NOT_FOUND for what can be no name."""
    name = visit.request.path_params["name"]
    if not _KNOWN.fullmatch(name):
        raise error("SANDBOX_NOT_FOUND", "There is no sandbox of this name.")
    return path_of(name)


async def frame(visit: Visit) -> dict[str, Any]:
    """What stands above every page of a living sandbox; SANDBOX_NOT_FOUND, SANDBOX_DESTROYED, SANDBOX_CREATING."""
    view = await visit.services.sandboxes.get(visit.project, path(visit))
    if view.status == "destroyed":
        raise error("SANDBOX_DESTROYED", f"{view.name} was destroyed.")
    if view.status == "creating":
        raise error("SANDBOX_CREATING", f"{view.name} is not made yet.")
    return {"view": view, "tabs": tabs(visit, view.name)}


async def state(visit: Visit, view: SandboxView) -> dict[str, Any]:
    """What the state's panel shows."""
    counted = await figures(visit, [view])
    return {
        "view": view,
        "tabs": tabs(visit, view.name) if view.status in _LIVES else [],
        "kind": INSTANCE_TYPES[view.instance_type],
        "lives": view.status in _LIVES,
        "verbs": VERBS,
        "counted": counted is not None,
        "figures": counted.get(view.sandbox_id) if counted else None,
    }


@get("/sandboxes/{name}")
async def page(visit: Visit) -> Response:
    """The page."""
    where = path(visit)
    view = await visit.services.sandboxes.get(visit.project, where)
    lines, head = await live.newest(visit, where)
    return visit.page("sandbox.html", lines=lines, head=head, **await state(visit, view))


@get("/sandboxes/{name}/state")
async def panel(visit: Visit) -> Response:
    """The state's panel alone, which the page asks for again and again."""
    view = await visit.services.sandboxes.get(visit.project, path(visit))
    return visit.piece("state.html", **await state(visit, view))


@get("/sandboxes/{name}/events")
async def events(visit: Visit) -> Response:
    """The sandbox's stream, live."""
    await visit.services.sandboxes.get(visit.project, path(visit))
    return await live.follow(visit, path(visit))


routes = [page, panel, events]
