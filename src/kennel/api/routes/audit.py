"""Owns what auditors ask of streams: which there are, whether a hash chain holds, a whole stream as JSON lines.

Called by app.py, and by the stream routes for the export and the wait. Invariant: memory is bounded by one page of
events, whatever a stream's length; an unknown stream is 404 before the first byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from kennel.api.access import allow
from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.event_stream import EventStream
from kennel.api.fields import Cursor, ProjectName
from kennel.api.hangup import unless_hung_up
from kennel.api.openapi import IN_PROJECT, answers, listing, ref
from kennel.api.services import services_of
from kennel.domain.principal import Principal

router = APIRouter(prefix="/v1/projects/{project}", tags=["streams"], route_class=StrictRoute)

Reader = Annotated[Principal, Depends(allow("read"))]
LINES = "application/x-ndjson"

_ROW = {"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}}


class LineStream(EventStream):
    """Streams JSON lines; cut off without its last chunk when the log fails meanwhile."""

    media_type = LINES


@router.get(
    "/streams",
    responses=answers(
        200, listing("streams", _ROW, cursor={"type": ["string", "null"]}), *IN_PROJECT, "INVALID_PATH"
    ),
)  # fmt: skip
async def list_streams(
    request: Request,
    project: ProjectName,
    _: Reader,
    prefix: Annotated[str, Query(max_length=1024)] = "/",
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Cursor = None,
) -> Response:
    """The streams at or below `prefix`, in byte order; give `cursor` back for the next page."""
    found = await services_of(request).streams.paths(project, prefix, after=cursor or "", limit=limit)
    more = found[-1] if len(found) == limit else None
    return json_response({"streams": [{"path": path} for path in found], "cursor": more})


@router.get(
    "/stream-verification/{path:path}",
    responses=answers(200, ref("Verification"), *IN_PROJECT, "STREAM_NOT_FOUND", "INVALID_PATH"),
)
async def verify(
    request: Request,
    project: ProjectName,
    path: Annotated[str, Path(description="the stream's path without its leading slash; empty for the root")],
    _: Reader,
) -> Response:
    """Recomputes the stream's hash chain and names every event that does not fit; `holds` when all do."""
    return json_response(await services_of(request).streams.verify(project, f"/{path}"))


def wants_lines(request: Request) -> bool:
    """Whether the caller asked for JSON lines rather than a page."""
    return LINES in request.headers.get("accept", "").lower()


async def exported(request: Request, project: str, path: str) -> Response:
    """The whole stream as JSON lines, up to where it ends now; STREAM_NOT_FOUND."""
    streams = services_of(request).streams
    await streams.read(project, path, limit=1)
    return LineStream(streams.export(project, path), heartbeat=None)


async def awaited(
    request: Request, project: str, path: str, after: int, types: Sequence[str] | None, wait_ms: int
) -> Response:
    """A page with the first fitting event, from history or yet to come; WAIT_TIMEOUT, STREAM_NOT_FOUND."""
    waiting = services_of(request).streams.wait_for_event(
        project, path, after=after, types=types, timeout=wait_ms / 1000
    )
    return json_response({"events": [await unless_hung_up(request, waiting)]})
