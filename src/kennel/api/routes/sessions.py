"""Owns the routes of shell sessions: shells of a sandbox that keep directory, variables and functions.

Called by app.py. Invariant: an id is chosen once; opening it again answers SESSION_ALREADY_EXISTS.
"""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import Response

from kennel.api.access import allow
from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.fields import (
    SESSION_PATTERN,
    AbsolutePath,
    Environment,
    Model,
    ProjectName,
    SandboxName,
    SessionId,
    User,
)
from kennel.api.openapi import IN_PROJECT, OF_NODE, OF_SANDBOX, WITH_BODY, answers, listing
from kennel.api.services import services_of
from kennel.domain.command import DEFAULT_CWD
from kennel.domain.names import path_of
from kennel.domain.principal import Principal
from kennel.wire.errors import error

router = APIRouter(
    prefix="/v1/projects/{project}/sandboxes/{name}/sessions", tags=["sessions"], route_class=StrictRoute
)

Reader = Annotated[Principal, Depends(allow("read"))]
Runner = Annotated[Principal, Depends(allow("exec"))]
SessionInPath = Annotated[str, Path(alias="sessionId", pattern=SESSION_PATTERN)]

_ID = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}
_OF_SESSION = (*IN_PROJECT, *OF_SANDBOX, *OF_NODE, "SESSION_NOT_FOUND", "SESSION_DESTROYED", "SESSION_TERMINATED")


class OpenSession(Model):
    """A new shell; without `id` one is made up."""

    id: SessionId | None = None
    cwd: AbsolutePath = DEFAULT_CWD
    env: Environment = {}
    user: User | None = None


@router.post(
    "",
    status_code=201,
    responses=answers(
        201, _ID, *_OF_SESSION, *WITH_BODY, "SESSION_ALREADY_EXISTS", "INVALID_PROCESS_CWD", "INVALID_USER",
        "INVALID_PROCESS_ENVIRONMENT", "RESOURCE_BUSY", "PROCESS_SPAWN_FAILED",
    ),
)  # fmt: skip
async def create(
    request: Request, project: ProjectName, name: SandboxName, who: Runner, body: OpenSession | None = None
) -> Response:
    """Opens a shell session, waking the sandbox if it sleeps."""
    asked = body or OpenSession()
    session_id = asked.id or f"session-{uuid.uuid4().hex}"
    env = {key: value for key, value in asked.env.items() if value is not None}
    await services_of(request).sandboxes.open_session(
        who, project, path_of(name), session_id, cwd=asked.cwd, env=env, user=asked.user
    )
    return json_response({"id": session_id}, 201)


@router.get("", responses=answers(200, listing("sessions", {"type": "string"}), *_OF_SESSION))
async def list_all(request: Request, project: ProjectName, name: SandboxName, who: Reader) -> Response:
    """The ids of the open sessions; a sleeping sandbox has none."""
    return json_response({"sessions": await services_of(request).sandboxes.list_sessions(who, project, path_of(name))})


@router.get("/{sessionId}", responses=answers(200, _ID, *_OF_SESSION))
async def show(
    request: Request, project: ProjectName, name: SandboxName, session_id: SessionInPath, who: Reader
) -> Response:
    """Whether this session is open."""
    if session_id not in await services_of(request).sandboxes.list_sessions(who, project, path_of(name)):
        raise error("SESSION_NOT_FOUND", "no such session")
    return json_response({"id": session_id})


@router.delete("/{sessionId}", status_code=204, responses=answers(204, None, *_OF_SESSION, *WITH_BODY))
async def close(
    request: Request, project: ProjectName, name: SandboxName, session_id: SessionInPath, who: Runner
) -> Response:
    """Ends the shell and what runs in it."""
    await services_of(request).sandboxes.close_session(who, project, path_of(name), session_id)
    return Response(status_code=204)
