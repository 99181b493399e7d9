"""Owns the routes of streams: appending a caller's own events, reading a page, following live.

Called by app.py. Invariants: nothing from outside is ever stamped as Kennel's own; reading an unknown stream is 404 and
creates nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Path, Query, Request
from pydantic import Field, StringConstraints
from starlette.responses import Response

from kennel.api.access import allow
from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.event_stream import EventStream, message
from kennel.api.fields import INTEGRAL, Model, ProjectName
from kennel.api.openapi import IN_PROJECT, WITH_BODY, answers, listing, ref
from kennel.api.routes.audit import LINES, awaited, exported, wants_lines
from kennel.api.services import services_of
from kennel.control.streams import OutsideEvent
from kennel.domain.admission import MAX_BATCH
from kennel.domain.event import Event, Gap
from kennel.domain.principal import Principal

router = APIRouter(prefix="/v1/projects/{project}", tags=["streams"], route_class=StrictRoute)

Reader = Annotated[Principal, Depends(allow("read"))]
Writer = Annotated[Principal, Depends(allow("exec"))]
StreamPath = Annotated[str, Path(description="the stream's path without its leading slash; empty for the root")]
MAX_OFFSET = 2**53
"""The last whole number that every JSON reader keeps exactly; no stream gets there."""
Offset = Annotated[int, Field(ge=0, le=MAX_OFFSET), INTEGRAL]
_encoder = msgspec.json.Encoder()


class OwnEvent(Model):
    """An event of the caller's own; `offset` is a precondition: the batch lands exactly there or not at all."""

    type: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    payload: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    offset: Offset | None = None


class Append(Model):
    """A batch; it lands whole or not at all."""

    events: Annotated[list[OwnEvent], Field(min_length=1, max_length=MAX_BATCH, fail_fast=True)]


@router.post(
    "/streams/{path:path}",
    status_code=201,
    responses=answers(
        201, listing("events", ref("Event")), *IN_PROJECT, *WITH_BODY, "INVALID_PATH", "INVALID_EVENT",
        "PAYLOAD_TOO_LARGE", "PLATFORM_TYPE_REFUSED", "PLATFORM_KEY_REFUSED", "IDEMPOTENCY_CONFLICT",
        "OFFSET_CONFLICT",
    ),
)  # fmt: skip
async def append(request: Request, project: ProjectName, path: StreamPath, body: Append, who: Writer) -> Response:
    """Appends events and creates the stream when it is new; platform types are refused."""
    events = [OutsideEvent(**event.model_dump()) for event in body.events]
    return json_response({"events": await services_of(request).streams.append(who, project, f"/{path}", events)}, 201)


_READ = answers(
    200, listing("events", ref("Event")), *IN_PROJECT, "STREAM_NOT_FOUND", "INVALID_PATH", "WAIT_TIMEOUT",
    "OPERATION_INTERRUPTED",
)  # fmt: skip
_READ[200]["content"] |= {media: {"schema": {"type": "string"}} for media in ("text/event-stream", LINES)}


@router.get("/streams/{path:path}", responses=_READ)
async def read(
    request: Request,
    project: ProjectName,
    path: StreamPath,
    _: Reader,
    after: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
    before: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = MAX_OFFSET,
    types: Annotated[str | None, Query(max_length=4096, description="comma-separated event types")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 500,
    follow: bool = False,
    wait_ms: Annotated[int, Query(alias="waitMs", ge=0, le=600_000, description="0: do not wait")] = 0,
    last_event_id: Annotated[int, Header(ge=0, le=MAX_OFFSET)] = 0,
) -> Response:
    """A page of events, oldest first; with `follow`, history and then live as Server-Sent Events.

    While following, a message's id is its offset and `Last-Event-ID` goes before `after`; a caller that falls behind
    gets the event `gap` and the end. With `waitMs`, the first event after `after` of one of `types`, as soon as there
    is one. With `Accept: application/x-ndjson`, the whole stream as JSON lines, one event each.
    """
    streams = services_of(request).streams
    wanted = None if types is None else [name for name in types.split(",") if name]
    if not follow and wants_lines(request):
        return await exported(request, project, f"/{path}")
    if not follow and wait_ms:
        return await awaited(request, project, f"/{path}", after, wanted, wait_ms)
    if not follow:
        found = await streams.read(
            project, f"/{path}", after=after, before=None if before == MAX_OFFSET else before, types=wanted, limit=limit
        )
        return json_response({"events": found})
    start = last_event_id or after
    await streams.read(
        project, f"/{path}", after=start, limit=1
    )  # an unknown stream is a 404, not a stream that breaks
    return EventStream(_messages(streams.follow(project, f"/{path}", after=start, types=wanted)))


async def _messages(events: AsyncIterator[Event | Gap]) -> AsyncIterator[bytes]:
    try:
        async for event in events:
            if isinstance(event, Gap):
                yield message(_encoder.encode(event), event="gap")
            else:
                yield message(_encoder.encode(event), last_id=event.offset)
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
