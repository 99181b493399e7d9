"""Owns the lifecycle routes of sandboxes: create, look, change, start, sleep, destroy.

Called by app.py. Invariant: looking never wakes; a create takes only public names, every other route also those that
rooms made.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from msgspec import UNSET
from pydantic import Field, StringConstraints
from starlette.responses import Response

from kennel.api.access import allow, request_id
from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.fields import Cursor, Environment, Labels, LeaveOut, Limit, Model, ProjectName, SandboxName, SleepAfter
from kennel.api.openapi import IN_PROJECT, OF_NODE, OF_SANDBOX, WITH_BODY, answers, listing, ref
from kennel.api.services import services_of
from kennel.domain.create_options import CreateOptions
from kennel.domain.names import NAME, PREFIX, claimable_name, path_of
from kennel.domain.principal import Principal
from kennel.wire.errors import error

router = APIRouter(prefix="/v1/projects/{project}/sandboxes", tags=["sandboxes"], route_class=StrictRoute)

Reader = Annotated[Principal, Depends(allow("read"))]
Keeper = Annotated[Principal, Depends(allow("lifecycle"))]
Word = Annotated[str, StringConstraints(min_length=1, max_length=256)]

_LOOK = answers(200, ref("SandboxView"), *IN_PROJECT, *OF_SANDBOX)
_CHANGE = answers(200, ref("SandboxView"), *IN_PROJECT, *OF_SANDBOX, *WITH_BODY)
_TURN = answers(200, ref("SandboxView"), *IN_PROJECT, *OF_SANDBOX, *OF_NODE, *WITH_BODY, "RESOURCE_BUSY")


_START = answers(
    200, ref("SandboxView"), *IN_PROJECT, *OF_SANDBOX, *OF_NODE, *WITH_BODY, "RESOURCE_BUSY", "SNAPSHOT_MISSING",
    "BLOBS_UNAVAILABLE", "DISK_TOO_SMALL",
)  # fmt: skip

_CLAIMABLE = {"pattern": f"^{PREFIX}{NAME}$", "examples": ["/sandboxes/main"]}
_LABEL = {"minLength": 1, "maxLength": 321, "pattern": "^[^=]"}


class CreateSandbox(Model):
    """A new sandbox; only `path` is needed. With `points` its files can be rolled back to before each command."""

    path: Annotated[str, Field(max_length=1024, json_schema_extra=_CLAIMABLE)]
    instance_type: Word = "basic"
    image: Word = "host"
    isolation: Word = "container"
    env: Environment = {}
    sleep_after: SleepAfter | None = None
    keep_alive: bool = False
    persist: Literal["workspace", "disk"] = "workspace"
    labels: Labels = {}
    leave_out: LeaveOut | None = None
    points: bool = False


class UpdateSandbox(Model):
    """What may change in place; a field that is left out stays. `leaveOut` replaces what was set: {} is the default."""

    sleep_after: SleepAfter | None = None
    keep_alive: bool = False
    labels: Labels = {}
    leave_out: LeaveOut = LeaveOut()
    points: bool = False


class StartSandbox(Model):
    """How to start; `empty` when its files cannot be had: with an empty `/workspace`, beside the backup that stands."""

    empty: bool = False


class Nothing(Model):
    """No fields yet."""


@router.post(
    "",
    status_code=201,
    responses=answers(
        201, ref("SandboxView"), *IN_PROJECT, *WITH_BODY, *OF_NODE, "INVALID_PATH", "NAME_TOO_LONG", "SANDBOX_EXISTS",
        "SANDBOX_CREATING", "SANDBOX_DESTROYED", "IMAGE_NOT_FOUND", "INVALID_PROCESS_ENVIRONMENT", "RESOURCE_BUSY",
    ),
)  # fmt: skip
async def create(request: Request, project: ProjectName, body: CreateSandbox, who: Keeper) -> Response:
    """Claims the name and makes the sandbox; the same `Idempotency-Key` gets the same answer again."""
    path = path_of(claimable_name(body.path))
    leave_out = {} if body.leave_out is None else body.leave_out.words()
    options = CreateOptions(**body.model_dump(exclude={"path", "leave_out"}), leave_out=leave_out)
    view = await services_of(request).sandboxes.create(who, project, path, options, request_id(request))
    return json_response(view, 201)


def _labels(labels: list[str]) -> dict[str, str | None]:
    """`name=value` asks for a value, `name` for any."""
    found: dict[str, str | None] = {}
    for label in labels:
        name, equals, value = label.partition("=")
        if not name or len(label) > 321:
            raise error("VALIDATION_FAILED", "invalid request", details={"label": ["name or name=value"]})
        found[name] = value if equals else None
    return found


@router.get(
    "",
    responses=answers(200, listing("sandboxes", ref("SandboxView"), cursor={"type": ["string", "null"]}), *IN_PROJECT),
)
async def list_all(
    request: Request,
    project: ProjectName,
    _: Reader,
    status: Annotated[str | None, Query(max_length=32)] = None,
    label: Annotated[list[Annotated[str, Field(json_schema_extra=_LABEL)]], Query(max_length=16)] = [],  # noqa: B006
    include_destroyed: Annotated[bool, Query(alias="includeDestroyed")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Sandboxes with their status, a page at a time; give `cursor` back for the next page."""
    views, more = await services_of(request).sandboxes.list(
        project,
        status=status,
        label=_labels(label) or None,
        include_destroyed=include_destroyed,
        limit=limit,
        cursor=cursor,
    )
    return json_response({"sandboxes": views, "cursor": more})


@router.get("/{name}", responses=_LOOK)
async def show(request: Request, project: ProjectName, name: SandboxName, _: Reader) -> Response:
    """One sandbox; looking never wakes it."""
    return json_response(await services_of(request).sandboxes.get(project, path_of(name)))


@router.patch("/{name}", responses=_CHANGE)
async def update(
    request: Request, project: ProjectName, name: SandboxName, body: UpdateSandbox, who: Keeper
) -> Response:
    """Changes habits and labels in place."""
    given = body.model_fields_set
    view = await services_of(request).sandboxes.update(
        who,
        project,
        path_of(name),
        sleep_after=body.sleep_after if "sleep_after" in given else UNSET,
        keep_alive=body.keep_alive if "keep_alive" in given else UNSET,
        labels=body.labels if "labels" in given else UNSET,
        leave_out=body.leave_out.words() if "leave_out" in given else UNSET,
        points=body.points if "points" in given else UNSET,
    )
    return json_response(view)


@router.delete("/{name}", status_code=204, responses=answers(204, None, *IN_PROJECT, *OF_SANDBOX, *OF_NODE, *WITH_BODY))
async def destroy(request: Request, project: ProjectName, name: SandboxName, who: Keeper) -> Response:
    """Tears the sandbox down and retires its name; idempotent."""
    await services_of(request).sandboxes.destroy(who, project, path_of(name))
    return Response(status_code=204)


@router.patch("/{name}/env", responses=_CHANGE)
async def set_env(
    request: Request, project: ProjectName, name: SandboxName, body: Environment, who: Keeper
) -> Response:
    """Merges variables into the sandbox's environment; null unsets one."""
    return json_response(await services_of(request).sandboxes.set_env(who, project, path_of(name), body))


@router.post("/{name}/start", responses=_START)
async def start(
    request: Request, project: ProjectName, name: SandboxName, who: Keeper, body: StartSandbox | None = None
) -> Response:
    """Boots or wakes it; answers when it runs."""
    empty = body is not None and body.empty
    return json_response(await services_of(request).sandboxes.start(who, project, path_of(name), empty=empty))


@router.post("/{name}/sleep", responses=_TURN)
async def sleep(
    request: Request, project: ProjectName, name: SandboxName, who: Keeper, _: Nothing | None = None
) -> Response:
    """Drains and stops it; the workspace stays."""
    return json_response(await services_of(request).sandboxes.sleep(who, project, path_of(name)))


@router.post("/{name}/restart", responses=_TURN)
async def restart(
    request: Request, project: ProjectName, name: SandboxName, who: Keeper, _: Nothing | None = None
) -> Response:
    """Sleep, then start."""
    return json_response(await services_of(request).sandboxes.restart(who, project, path_of(name)))


@router.post("/{name}/kill", responses=_TURN)
async def kill(
    request: Request, project: ProjectName, name: SandboxName, who: Keeper, _: Nothing | None = None
) -> Response:
    """Stops it at once, whatever runs; the writable files stay as they are."""
    return json_response(await services_of(request).sandboxes.kill(who, project, path_of(name)))


@router.post("/{name}/renew", responses=_TURN)
async def renew(
    request: Request, project: ProjectName, name: SandboxName, who: Keeper, _: Nothing | None = None
) -> Response:
    """Starts the idle time anew."""
    return json_response(await services_of(request).sandboxes.renew(who, project, path_of(name)))
