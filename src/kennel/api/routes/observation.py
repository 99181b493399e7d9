"""Owns the routes that look at a sandbox's projection: once, after an offset, or live.

Called by app.py. Invariant: looking wakes nothing and creates nothing, and works after the sandbox's end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from kennel.api.access import allow
from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.event_stream import EventStream, message
from kennel.api.fields import ProjectName, SandboxName
from kennel.api.hangup import unless_hung_up
from kennel.api.openapi import IN_PROJECT, answers, ref
from kennel.api.services import services_of
from kennel.control.live_state import Update
from kennel.domain.names import path_of
from kennel.domain.principal import Principal

router = APIRouter(prefix="/v1/projects/{project}/sandboxes/{name}", tags=["sandboxes"], route_class=StrictRoute)

Reader = Annotated[Principal, Depends(allow("read"))]
MAX_OFFSET = 2**53
MAX_WAIT_MS = 600_000
DEFAULT_WAIT_MS = 30_000
_OF_LOOK = ("SANDBOX_NOT_FOUND",)
_encoder = msgspec.json.Encoder()

_SNAPSHOT = {
    "type": "object",
    "required": ["offset", "state"],
    "properties": {"offset": {"type": "integer", "minimum": 0}, "state": ref("Projection")},
}
_LIVE = answers(200, None, *IN_PROJECT, *_OF_LOOK)
_LIVE[200]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}


@router.get(
    "/projection", responses=answers(200, _SNAPSHOT, *IN_PROJECT, *_OF_LOOK, "WAIT_TIMEOUT", "OPERATION_INTERRUPTED")
)
async def projection(
    request: Request,
    project: ProjectName,
    name: SandboxName,
    _: Reader,
    wait_until: Annotated[int, Query(alias="waitUntil", ge=0, le=MAX_OFFSET)] = 0,
    timeout_ms: Annotated[int, Query(alias="timeoutMs", ge=1, le=MAX_WAIT_MS)] = DEFAULT_WAIT_MS,
) -> Response:
    """The fold of the sandbox's own stream and the offset it stands at.

    With `waitUntil`, answers once that offset is folded in: read your own writes. Before its birth `status` is null.
    """
    looks, path = services_of(request).observation, path_of(name)
    if not wait_until:
        return json_response(await looks.snapshot(project, path))
    work = looks.wait_until_processed(project, path, wait_until, timeout_ms / 1000)
    return json_response(await unless_hung_up(request, work))


@router.get("/live", responses=_LIVE)
async def live(request: Request, project: ProjectName, name: SandboxName, _: Reader) -> Response:
    """Server-Sent Events: `snapshot` with the whole state, then a `diff` (JSON Patch) whenever it changed.

    A message's id is its revision, the offset it stands at; a diff names the `previous` one. `gap` says that no more
    will come: subscribe afresh.
    """
    updates = await services_of(request).observation.subscribe(project, path_of(name))
    return EventStream(_messages(updates))


async def _messages(updates: AsyncIterator[Update]) -> AsyncIterator[bytes]:
    try:
        async for update in updates:
            yield message(_encoder.encode(update), event=update.kind, last_id=update.revision)
    finally:
        close = getattr(updates, "aclose", None)
        if close is not None:
            await close()
