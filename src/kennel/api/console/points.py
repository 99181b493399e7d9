"""Owns automatic points on a sandbox's snapshots' page: taking them or not, going back to before a command.

Called by console/app.py and the snapshots' page. Invariant: only commands are offered that a point that is still there
was taken before; looking wakes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response
from starlette.routing import BaseRoute

from kennel.api.console import text
from kennel.api.console.forms import checked
from kennel.api.console.sandbox import path
from kennel.api.console.visit import Visit, post
from kennel.api.failures import invalid
from kennel.api.routes.snapshots import RollBack
from kennel.api.services import snapshots_of
from kennel.domain.event import trusted
from kennel.domain.snapshot import POINT
from kennel.wire.results import SnapshotView

SHOWN = 40
"""Commands that are offered, the newest."""
_LOOKED_AT = 2000
"""Offsets back from the stream's end where they are looked for."""
_BEGAN = "sandbox/exec-started"


@dataclass(frozen=True, slots=True)
class Command:
    """A command that can be gone back to before: its offset, what it was, when it began, the point's id."""

    offset: int
    command: str
    at: str
    point: str


async def commands(visit: Visit, snapshots: Sequence[SnapshotView]) -> list[Command]:
    """The last commands that have a point, the newest first."""
    points = sorted((each for each in snapshots if each.reason == POINT), key=lambda each: each.offset)
    stream = path(visit)
    head = await visit.services.streams.head(visit.project, stream) if points else None
    if head is None:
        return []
    after = max(points[0].offset, head - _LOOKED_AT)
    found: list[Command] = []
    while page := await visit.services.streams.read(visit.project, stream, after=after, types=(_BEGAN,), limit=500):
        for event in page:
            if trusted(event):
                point = next(each for each in reversed(points) if each.offset < event.offset)
                told = text.one_line(str(event.payload.get("command", "")))[:200]
                found.append(Command(event.offset, told, event.created_at, point.id))
        after = page[-1].offset
    return found[::-1][:SHOWN]


def _back(visit: Visit, notice: str) -> Response:
    return visit.go(visit.url("sandboxes", visit.request.path_params["name"], "snapshots"), notice)


@post("/sandboxes/{name}/points", "lifecycle")
async def turn(visit: Visit) -> Response:
    """Takes points from the next command on, or no more."""
    wanted = visit.form.text("points")
    if wanted not in ("on", "off"):
        raise invalid({"points": ["on or off"]})
    await visit.services.sandboxes.update(visit.who, visit.project, path(visit), points=wanted == "on")
    told = "A point is taken before each command from now on." if wanted == "on" else "No more points are taken."
    return _back(visit, told)


@post("/sandboxes/{name}/points/back", "lifecycle")
async def back(visit: Visit) -> Response:
    """Makes the files those from before a command."""
    offset = visit.form.text("before")
    if not (offset.isascii() and offset.isdigit() and len(offset) < 16):
        raise invalid({"before": ["the offset of a command"]})
    body = checked(RollBack, {"before": int(offset)})
    await snapshots_of(visit.request).rollback(visit.who, visit.project, path(visit), before=body.before)
    return _back(visit, "The files are those from before that command.")


routes: list[BaseRoute] = [turn, back]
