"""Owns the snapshots' page of a sandbox: their tree; take, compare, roll back, fork, export, delete.

Called by console/app.py. Invariants: looking wakes nothing; what replaces or deletes files is asked for twice; a form
sent twice makes one fork.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from kennel.api.console.backups import saved
from kennel.api.console.forms import checked, lasting
from kennel.api.console.lineage import rows
from kennel.api.console.points import commands
from kennel.api.console.sandbox import frame, path
from kennel.api.console.visit import Visit, get, post
from kennel.api.hangup import unless_hung_up
from kennel.api.routes.snapshots import Export, Fork, TakeSnapshot
from kennel.api.services import snapshots_of
from kennel.domain.names import PREFIX, claimable_name, path_of
from kennel.domain.snapshot import POINT
from kennel.wire.errors import error
from kennel.wire.results import SnapshotView

_ID = re.compile(r"[a-z0-9]{1,64}")
SHOWN = 1000
"""Changed paths that a page shows."""


def _id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise error("SNAPSHOT_NOT_FOUND", "There is no such snapshot.", admitted="no")
    return text


async def _list(visit: Visit) -> list[SnapshotView]:
    return list(await snapshots_of(visit.request).list(visit.project, path(visit)))


def _back(visit: Visit, notice: str | None = None) -> Response:
    return visit.go(visit.url("sandboxes", visit.request.path_params["name"], "snapshots"), notice)


@get("/sandboxes/{name}/snapshots")
async def page(visit: Visit) -> Response:
    """The page."""
    shown, found = await frame(visit), await _list(visit)
    return visit.page(
        "snapshots.html", tree=rows(found, shown["view"].last_backup_id), commands=await commands(visit, found),
        points=sum(each.reason == POINT for each in found), saved=await saved(visit),
        request=secrets.token_urlsafe(16), **shown,
    )  # fmt: skip


@post("/sandboxes/{name}/snapshots", "lifecycle")
async def take(visit: Visit) -> Response:
    """The files as they are now."""
    words: dict[str, Any] = {"name": visit.form.text("name").strip() or None, "ttl": lasting(visit.form)}
    if visit.form.flag("whole"):
        words["leaveOut"] = {"nodeModules": False, "gitignore": False}
    body = checked(TakeSnapshot, words)
    leave_out = None if body.leave_out is None else body.leave_out.words()
    work = snapshots_of(visit.request).take(
        visit.who, visit.project, path(visit), name=body.name, ttl_seconds=body.ttl, leave_out=leave_out
    )
    await work
    return _back(visit, "The snapshot was taken.")


@get("/sandboxes/{name}/snapshots/{snapshot}/diff")
async def diff(visit: Visit) -> Response:
    """What changed since a snapshot, up to another or up to now."""
    shown = await frame(visit)
    first = _id(visit.request.path_params["snapshot"])
    asked = visit.request.query_params.get("with", "")
    other = _id(asked) if asked else None
    work = snapshots_of(visit.request).diff(visit.project, path(visit), first, other)
    found = await unless_hung_up(visit.request, work)
    return visit.page(
        "diff.html", found=found, rows=found.paths[:SHOWN], more=found.truncated or len(found.paths) > SHOWN,
        snapshots=await _list(visit), first=first, other=other or "", **shown,
    )  # fmt: skip


@post("/sandboxes/{name}/snapshots/{snapshot}/rollback", "lifecycle")
async def rollback(visit: Visit) -> Response:
    """Makes the files those of a snapshot."""
    snapshot = _id(visit.request.path_params["snapshot"])
    await snapshots_of(visit.request).rollback(visit.who, visit.project, path(visit), snapshot)
    return _back(visit, "The files are those of the snapshot again.")


@post("/sandboxes/{name}/snapshots/{snapshot}/delete", "lifecycle")
async def delete(visit: Visit) -> Response:
    """Takes a snapshot off the list."""
    snapshot = _id(visit.request.path_params["snapshot"])
    await snapshots_of(visit.request).delete(visit.who, visit.project, path(visit), snapshot)
    return _back(visit, "The snapshot was deleted.")


@post("/sandboxes/{name}/fork", "lifecycle")
async def fork(visit: Visit) -> Response:
    """A new sandbox with the files of this one, as they are now or as a snapshot has them."""
    words: dict[str, Any] = {"path": PREFIX + visit.form.text("name").strip()}
    if visit.form.text("snapshot"):
        words["snapshotId"] = visit.form.text("snapshot")
    body = checked(Fork, {**words, "secrets": visit.form.flag("secrets")})
    view = await snapshots_of(visit.request).fork(
        visit.who, visit.project, path(visit), path_of(claimable_name(body.path)), snapshot_id=body.snapshot_id,
        keep_secrets=body.secrets, request_id=f"console {visit.form.text('request')[:64]}",
    )  # fmt: skip
    return visit.go(visit.url("sandboxes", view.name), f"{view.name} was forked from {path(visit)}.")


@get("/sandboxes/{name}/snapshots/{snapshot}/export", "lifecycle")
async def export(visit: Visit) -> Response:
    """The whole tree as tar.zst."""
    snapshot = _id(visit.request.path_params["snapshot"])
    filename = f"{visit.request.path_params['name']}-{snapshot}.tar.zst"
    return Export(snapshots_of(visit.request), visit.project, path(visit), snapshot, filename=filename)


routes: list[BaseRoute] = [page, take, diff, rollback, delete, fork, export]
