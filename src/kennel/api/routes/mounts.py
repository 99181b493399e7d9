"""Owns the routes of bucket mounts: mount, list, unmount.

Called by app.py. Invariant: listing and unmounting wake nothing; no answer holds a credential.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field, StringConstraints
from starlette.responses import Response

from kennel.api.access import allow
from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.fields import NO_NUL, Model, ProjectName, SandboxName
from kennel.api.openapi import IN_PROJECT, OF_NODE, OF_SANDBOX, WITH_BODY, answers, listing, ref
from kennel.api.services import running_of
from kennel.domain.bucket import Bucket, Credentials
from kennel.domain.names import path_of
from kennel.domain.principal import Principal

router = APIRouter(prefix="/v1/projects/{project}/sandboxes/{name}", tags=["mounts"], route_class=StrictRoute)

Reader = Annotated[Principal, Depends(allow("read"))]
Runner = Annotated[Principal, Depends(allow("exec"))]
MountPath = Annotated[str, StringConstraints(min_length=1, max_length=4096), Field(json_schema_extra=NO_NUL)]
_Text = Annotated[str, StringConstraints(min_length=1, max_length=1024), Field(json_schema_extra=NO_NUL)]
_Secret = Annotated[str, StringConstraints(min_length=1, max_length=8192), Field(json_schema_extra=NO_NUL)]
_Option = Annotated[str, StringConstraints(min_length=1, max_length=128), Field(json_schema_extra=NO_NUL)]
_ALL = (*IN_PROJECT, *OF_SANDBOX, "INVALID_MOUNT_CONFIG", "NODE_UNAVAILABLE")


class GivenCredentials(Model):
    """What the requests to the store are signed with."""

    access_key_id: _Secret
    secret_access_key: _Secret
    session_token: _Secret | None = None


class MountRequest(Model):
    """A bucket, or what is below `prefix` in it, at a place below /workspace."""

    bucket: _Text
    mount_path: MountPath
    endpoint: _Text
    prefix: Annotated[str, StringConstraints(max_length=1024), Field(json_schema_extra=NO_NUL)] | None = None
    read_only: bool = False
    credentials: GivenCredentials | None = None
    s3fs_options: Annotated[list[_Option], Field(max_length=16, alias="s3fsOptions")] = []


@router.post(
    "/mounts",
    status_code=201,
    responses=answers(
        201, ref("MountView"), *_ALL, *OF_NODE, *WITH_BODY, "MISSING_CREDENTIALS", "BUCKET_MOUNT_ERROR",
        "NOT_SUPPORTED", "RESOURCE_BUSY",
    ),
)  # fmt: skip
async def mount(request: Request, project: ProjectName, name: SandboxName, body: MountRequest, who: Runner) -> Response:
    """Mounts a bucket, waking the sandbox; it lasts until it is unmounted or the sandbox stops."""
    given = body.credentials
    asked = Bucket(
        bucket=body.bucket,
        mount_path=body.mount_path,
        endpoint=body.endpoint,
        prefix=body.prefix,
        read_only=body.read_only,
        options=tuple(body.s3fs_options),
    )
    credentials = (
        None if given is None else Credentials(given.access_key_id, given.secret_access_key, given.session_token)
    )
    view = await running_of(request).buckets.mount(who, project, path_of(name), asked, credentials)
    return json_response(view, 201)


@router.get("/mounts", responses=answers(200, listing("mounts", ref("MountView")), *_ALL))
async def list_all(request: Request, project: ProjectName, name: SandboxName, _: Reader) -> Response:
    """What is mounted now; nothing in a sandbox that sleeps."""
    return json_response({"mounts": await running_of(request).buckets.list(project, path_of(name))})


@router.delete(
    "/mounts",
    status_code=204,
    responses=answers(204, None, *_ALL, "BUCKET_UNMOUNT_ERROR", "SANDBOX_LOST", "OPERATION_INTERRUPTED"),
)
async def unmount(
    request: Request,
    project: ProjectName,
    name: SandboxName,
    who: Runner,
    mount_path: Annotated[MountPath, Query(alias="mountPath")],
    force: bool = False,
) -> Response:
    """Takes a bucket away; `force` also while it is in use, which loses what is not written yet."""
    await running_of(request).buckets.unmount(who, project, path_of(name), mount_path, force=force)
    return Response(status_code=204)
