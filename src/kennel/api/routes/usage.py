"""Owns `GET /usage`: what a project's running sandboxes use.

Called by app.py. Invariant: looking wakes none and extends no life; a sandbox that does not answer is left out.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from kennel.api.access import allow
from kennel.api.answers import json_response
from kennel.api.fields import Cursor, Limit, ProjectName
from kennel.api.openapi import IN_PROJECT, answers, listing, ref
from kennel.api.services import services_of
from kennel.domain.principal import Principal
from kennel.wire.errors import error

router = APIRouter(prefix="/v1/projects/{project}/usage", tags=["sandboxes"])


@router.get(
    "",
    responses=answers(
        200, listing("usage", ref("UsageView"), cursor={"type": ["string", "null"]}), *IN_PROJECT, "NODE_UNAVAILABLE"
    ),
)
async def list_all(
    request: Request,
    project: ProjectName,
    _: Annotated[Principal, Depends(allow("read"))],
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """CPU, memory, disk and processes of a page of running sandboxes; each is looked at once a second at most."""
    usage = request.app.state.usage
    if usage is None:
        raise error("NODE_UNAVAILABLE", "sandboxes are not enabled here", admitted="no")
    views, more = await services_of(request).sandboxes.list(project, limit=limit, cursor=cursor)
    return json_response({"usage": await usage.views(views), "cursor": more})
