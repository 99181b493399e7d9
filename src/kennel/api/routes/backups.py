"""Owns the routes of backups: of one directory, made, listed, put back, deleted.

Called by app.py. Invariant: listing wakes nothing; where a backup may come from and go to is the service's to say.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field, StringConstraints
from starlette.responses import Response

from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.fields import INTEGRAL, NO_NUL, Model, Pattern, ProjectName, SandboxName
from kennel.api.openapi import IN_PROJECT, OF_NODE, OF_SANDBOX, WITH_BODY, answers, listing, ref
from kennel.api.routes.snapshots import OF_LAYERS, Keeper, Reader, SnapshotId
from kennel.api.services import backups_of
from kennel.domain.names import path_of

router = APIRouter(prefix="/v1/projects/{project}/sandboxes", tags=["backups"], route_class=StrictRoute)

Directory = Annotated[str, StringConstraints(min_length=1, max_length=4096), Field(json_schema_extra=NO_NUL)]
_ALL = (
    *IN_PROJECT, *OF_SANDBOX, *OF_NODE, *WITH_BODY, *OF_LAYERS, "INVALID_BACKUP_CONFIG", "BACKUP_NOT_FOUND",
    "BACKUP_EXPIRED", "NOT_DIRECTORY", "FILE_NOT_FOUND", "NO_SPACE", "BLOB_CORRUPT", "OPERATION_INTERRUPTED",
)  # fmt: skip


class CreateBackup(Model):
    """A backup of `dir`, which without `ttl` (seconds) lasts. What is not said of `excludes` the sandbox says."""

    dir: Directory = "/workspace"
    name: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    ttl: Annotated[int, Field(ge=1, le=10 * 365 * 86400), INTEGRAL] | None = None
    excludes: Annotated[list[Pattern], Field(max_length=64)] | None = None
    gitignore: bool | None = None


class RestoreBackup(Model):
    """Where to; without `dir` to where it came from."""

    dir: Directory | None = None


@router.post("/{name}/backups", status_code=201, responses=answers(201, ref("BackupView"), *_ALL))
async def create(
    request: Request, project: ProjectName, name: SandboxName, who: Keeper, body: CreateBackup | None = None
) -> Response:
    """The directory as it is now: /workspace as a snapshot, another one as an archive made inside."""
    asked = body or CreateBackup()
    words = {"gitignore": asked.gitignore, "patterns": asked.excludes}
    view = await backups_of(request).create(
        who,
        project,
        path_of(name),
        asked.dir,
        name=asked.name,
        ttl_seconds=asked.ttl,
        asked={word: value for word, value in words.items() if value is not None},
    )
    return json_response(view, 201)


@router.get("/{name}/backups", responses=answers(200, listing("backups", ref("BackupView")), *_ALL))
async def list_all(request: Request, project: ProjectName, name: SandboxName, _: Reader) -> Response:
    """The sandbox's backups, the newest first."""
    return json_response({"backups": await backups_of(request).list(project, path_of(name))})


@router.delete("/{name}/backups/{backup}", status_code=204, responses=answers(204, None, *_ALL))
async def delete(
    request: Request, project: ProjectName, name: SandboxName, backup: SnapshotId, who: Keeper
) -> Response:
    """Takes it off the list, and its archive out of the store."""
    await backups_of(request).delete(who, project, path_of(name), backup)
    return Response(status_code=204)


_RESTORED = {
    "type": "object",
    "required": ["success", "dir", "id"],
    "properties": {"success": {"type": "boolean"}, "dir": {"type": "string"}, "id": {"type": "string"}},
}


@router.post("/{name}/backups/{backup}/restore", responses=answers(200, _RESTORED, *_ALL))
async def restore(
    request: Request,
    project: ProjectName,
    name: SandboxName,
    backup: SnapshotId,
    who: Keeper,
    body: RestoreBackup | None = None,
) -> Response:
    """Makes the directory what the backup holds, and nothing else; /workspace as a roll back, which ends what runs."""
    dir_ = None if body is None else body.dir
    where = await backups_of(request).restore(who, project, path_of(name), backup, dir_)
    return json_response({"success": True, "dir": where, "id": backup})
