"""Owns saved directories on a sandbox's snapshots' page: save one, put it back, delete it.

Called by console/app.py and the snapshots' page. Invariant: what replaces or deletes files is asked for twice; a backup
of the workspace is a snapshot and stands among those.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from kennel.api.console.forms import checked, lasting
from kennel.api.console.sandbox import path
from kennel.api.console.visit import Visit, post
from kennel.api.hangup import unless_hung_up
from kennel.api.routes.backups import CreateBackup, RestoreBackup
from kennel.api.services import backups_of
from kennel.domain.backup import WORKSPACE
from kennel.wire.results import BackupView


async def saved(visit: Visit) -> list[BackupView] | None:
    """The saved directories, the newest first; None where this installation has none."""
    if visit.services.backups is None:
        return None
    found = await visit.services.backups.list(visit.project, path(visit))
    return [each for each in found if each.dir != WORKSPACE]


def _back(visit: Visit, notice: str) -> Response:
    return visit.go(visit.url("sandboxes", visit.request.path_params["name"], "snapshots"), notice)


@post("/sandboxes/{name}/backups", "lifecycle")
async def save(visit: Visit) -> Response:
    """A directory as it is now."""
    words: dict[str, Any] = {"dir": visit.form.text("dir").strip(), "ttl": lasting(visit.form)}
    body = checked(CreateBackup, {**words, "name": visit.form.text("name").strip() or None})
    work = backups_of(visit.request).create(
        visit.who, visit.project, path(visit), body.dir, name=body.name, ttl_seconds=body.ttl
    )
    made = await unless_hung_up(visit.request, work)
    return _back(visit, f"{made.dir} was saved.")


@post("/sandboxes/{name}/backups/{backup}/restore", "lifecycle")
async def restore(visit: Visit) -> Response:
    """Makes a directory what a backup holds, the one it came from or another."""
    body = checked(RestoreBackup, {"dir": visit.form.text("dir").strip() or None})
    backup = visit.request.path_params["backup"][:64]
    work = backups_of(visit.request).restore(visit.who, visit.project, path(visit), backup, body.dir)
    where = await unless_hung_up(visit.request, work)
    return _back(visit, f"{where} is what the backup holds.")


@post("/sandboxes/{name}/backups/{backup}/delete", "lifecycle")
async def delete(visit: Visit) -> Response:
    """Takes a backup off the list, and its files out of the store."""
    backup = visit.request.path_params["backup"][:64]
    await backups_of(visit.request).delete(visit.who, visit.project, path(visit), backup)
    return _back(visit, "The backup was deleted.")


routes: list[BaseRoute] = [save, restore, delete]
