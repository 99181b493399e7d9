"""Owns the routes of snapshots: take, list, delete, compare, export; roll back, fork and import of sandboxes.

Called by app.py. Invariant: an export that cannot be finished breaks its connection; what is imported is unpacked
inside a sandbox, never here.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from fastapi import APIRouter, Depends, Query, Request
from pydantic import ConfigDict, Field, StringConstraints, model_validator
from starlette.responses import Response
from starlette.types import Send

from kennel.api.access import allow, request_id
from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.body_stream import body_of
from kennel.api.fields import INTEGRAL, LeaveOut, Model, ProjectName, SandboxName
from kennel.api.file_answer import SAFE_HEADERS, Streamed
from kennel.api.openapi import IN_PROJECT, OF_NODE, OF_SANDBOX, WITH_BODY, answers, listing, ref
from kennel.api.routes.exec import given
from kennel.api.services import snapshots_of
from kennel.control.snapshots import Snapshots
from kennel.domain.create_options import CreateOptions
from kennel.domain.names import NAME, PREFIX, claimable_name, path_of
from kennel.domain.principal import Principal

router = APIRouter(prefix="/v1/projects/{project}/sandboxes", tags=["snapshots"], route_class=StrictRoute)

Reader = Annotated[Principal, Depends(allow("read"))]
Keeper = Annotated[Principal, Depends(allow("lifecycle"))]
SnapshotId = Annotated[str, StringConstraints(pattern="^[a-z0-9]{1,64}$")]
_CLAIMABLE = {"pattern": f"^{PREFIX}{NAME}$", "examples": ["/sandboxes/twin"]}
NewPath = Annotated[str, Field(max_length=1024, json_schema_extra=_CLAIMABLE)]

ZSTD = "application/zstd"
MAX_OFFSET = 2**53
OF_LAYERS = (
    "SNAPSHOT_NOT_FOUND", "SNAPSHOT_MISSING", "POINTER_CONFLICT", "PACK_FAILED", "PACK_TIMEOUT", "PACK_TOO_LARGE",
    "PATH_TOO_LONG", "FILESYSTEM_ERROR", "RESOURCE_BUSY", "BLOBS_UNAVAILABLE", "LAYER_MISSING", "LAYER_CORRUPT",
    "DISK_TOO_SMALL",
)  # fmt: skip
_ALL = (*IN_PROJECT, *OF_SANDBOX, *OF_NODE, *WITH_BODY, *OF_LAYERS)
_MAKES = (
    *_ALL, "INVALID_PATH", "NAME_TOO_LONG", "SANDBOX_EXISTS", "IMAGE_NOT_FOUND", "BLOB_CORRUPT",
)  # fmt: skip
_DOWN = answers(200, None, *_ALL)
_DOWN[200]["content"] = {ZSTD: {"schema": {"type": "string", "format": "binary"}}}
_BODY = {"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}}


class TakeSnapshot(Model):
    """A snapshot; without `ttl` (seconds) it lasts until it is deleted."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None
    ttl: Annotated[int, Field(ge=1, le=10 * 365 * 86400), INTEGRAL] | None = None
    leave_out: LeaveOut | None = None


class RollBack(Model):
    """Which snapshot the files are to be again; or `before`, the offset of a command's `sandbox/exec-started`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [given("snapshotId"), given("before")]})

    snapshot_id: SnapshotId | None = None
    before: Annotated[int, Field(ge=1, le=MAX_OFFSET), INTEGRAL] | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.snapshot_id is None) == (self.before is None):
            raise ValueError("exactly one of 'snapshotId' and 'before' is needed")
        return self


class Fork(Model):
    """A new sandbox at `path`; without `snapshotId` as this one is now, without `instanceType` of the same type.

    `secrets`: variables that name secrets too.
    """

    path: NewPath
    snapshot_id: SnapshotId | None = None
    instance_type: Annotated[str, Field(max_length=64)] | None = None
    secrets: bool = False


@router.post("/{name}/snapshots", status_code=201, responses=answers(201, ref("SnapshotView"), *_ALL))
async def take(
    request: Request, project: ProjectName, name: SandboxName, who: Keeper, body: TakeSnapshot | None = None
) -> Response:
    """The sandbox's files as they are now; wakes nothing."""
    asked = body or TakeSnapshot()
    leave_out = None if asked.leave_out is None else asked.leave_out.words()
    view = await snapshots_of(request).take(
        who, project, path_of(name), name=asked.name, ttl_seconds=asked.ttl, leave_out=leave_out
    )
    return json_response(view, 201)


@router.get(
    "/{name}/snapshots",
    responses=answers(200, listing("snapshots", ref("SnapshotView")), *IN_PROJECT, *OF_SANDBOX, "NODE_UNAVAILABLE"),
)
async def list_all(request: Request, project: ProjectName, name: SandboxName, _: Reader) -> Response:
    """The sandbox's snapshots, the newest first."""
    return json_response({"snapshots": await snapshots_of(request).list(project, path_of(name))})


@router.delete("/{name}/snapshots/{snapshot}", status_code=204, responses=answers(204, None, *_ALL))
async def delete(
    request: Request, project: ProjectName, name: SandboxName, snapshot: SnapshotId, who: Keeper
) -> Response:
    """Takes it off the list; the sandbox's files stay what they are."""
    await snapshots_of(request).delete(who, project, path_of(name), snapshot)
    return Response(status_code=204)


@router.get("/{name}/snapshots/{snapshot}/diff", responses=answers(200, ref("DiffView"), *_ALL))
async def diff(
    request: Request,
    project: ProjectName,
    name: SandboxName,
    snapshot: SnapshotId,
    _: Reader,
    other: Annotated[SnapshotId | None, Query(alias="with", description="another snapshot; else: as it is now")] = None,
) -> Response:
    """Which paths changed since the snapshot."""
    return json_response(await snapshots_of(request).diff(project, path_of(name), snapshot, other))


@router.post("/{name}/rollback", responses=answers(200, ref("SandboxView"), *_ALL))
async def rollback(request: Request, project: ProjectName, name: SandboxName, body: RollBack, who: Keeper) -> Response:
    """Makes the files those of the snapshot, or of the newest point from before a command; what runs ends."""
    view = await snapshots_of(request).rollback(who, project, path_of(name), body.snapshot_id, before=body.before)
    return json_response(view)


@router.post("/{name}/fork", status_code=201, responses=answers(201, ref("SandboxView"), *_MAKES))
async def fork(request: Request, project: ProjectName, name: SandboxName, body: Fork, who: Keeper) -> Response:
    """A new sandbox with this one's files; its environment too, without values that name secrets."""
    view = await snapshots_of(request).fork(
        who,
        project,
        path_of(name),
        path_of(claimable_name(body.path)),
        snapshot_id=body.snapshot_id,
        instance_type=body.instance_type,
        keep_secrets=body.secrets,
        request_id=request_id(request),
    )
    return json_response(view, 201)


class Export(Streamed):
    """Streams a snapshot's tree; what is wrong with it at the start is a typed answer."""

    def __init__(
        self, snapshots: Snapshots, project: str, path: str, snapshot: str, *, filename: str | None = None
    ) -> None:
        super().__init__()
        named = "attachment" if filename is None else f'attachment; filename="{filename}"'
        self._head = {**SAFE_HEADERS, "content-type": ZSTD, "content-disposition": named}
        self._snapshots, self._asked = snapshots, (project, path, snapshot)

    async def serve(self, send: Send) -> None:
        """Starts the export, and sends it."""
        async with self._snapshots.export(*self._asked) as pieces:
            first = await anext(pieces, b"")
            await self.begin(send, 200, self._head)
            await self.rest(send, first, pieces)


@router.get("/{name}/snapshots/{snapshot}/export", responses=_DOWN)
async def export(
    request: Request, project: ProjectName, name: SandboxName, snapshot: SnapshotId, _: Keeper
) -> Response:
    """The whole tree as tar.zst."""
    return Export(snapshots_of(request), project, path_of(name), snapshot)


@router.post("/import", status_code=201, responses=answers(201, ref("SandboxView"), *_MAKES), openapi_extra=_BODY)
async def take_in(
    request: Request,
    project: ProjectName,
    who: Keeper,
    path: Annotated[str, Query(max_length=1024, description="the new sandbox", json_schema_extra=_CLAIMABLE)],
    instance_type: Annotated[str, Query(alias="instanceType", max_length=64)] = "basic",
    persist: Literal["workspace", "disk"] = "workspace",
) -> Response:
    """A new sandbox whose `/workspace` is the tar.zst in the body, unpacked inside it."""
    options = CreateOptions(instance_type=instance_type, persist=persist)
    where = path_of(claimable_name(path))
    view = await snapshots_of(request).take_in(who, project, where, body_of(request), options, request_id(request))
    return json_response(view, 201)
