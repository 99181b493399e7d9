"""Owns the routes of the way out: rules, the audit, dry runs, approvals.

Called by app.py. Invariant: reading needs `read`, changing or deciding needs `policy`; a dry run sends nothing.
"""

from __future__ import annotations

import asyncio
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
from kennel.api.fields import Model, ProjectName
from kennel.api.openapi import IN_PROJECT, WITH_BODY, answers, listing, ref
from kennel.api.services import Streams, egress_of, services_of
from kennel.domain.egress_state import LOG
from kennel.domain.event import Gap
from kennel.domain.principal import Principal
from kennel.wire.egress import MAX_RULES

router = APIRouter(prefix="/v1/projects/{project}", tags=["egress"], route_class=StrictRoute)

Reader = Annotated[Principal, Depends(allow("read"))]
Ruler = Annotated[Principal, Depends(allow("policy"))]
ApprovalId = Annotated[str, Path(pattern=r"^hold-[0-9a-f]{16}$")]
MAX_OFFSET = 2**53
_PAUSE = 0.5
_encoder = msgspec.json.Encoder()


class Rules(Model):
    """A whole policy; each rule is checked against `docs/egress.md`'s form."""

    rules: Annotated[list[dict[str, Any]], Field(max_length=MAX_RULES)]
    default: Annotated[str, StringConstraints(pattern="^(allow|deny)$")] | None = None
    audit_only: bool | None = None
    approvers: Annotated[list[Annotated[str, StringConstraints(max_length=1024)]], Field(max_length=32)] | None = None
    version: Annotated[int, Field(ge=0, description="ignored, so that an answer can be sent back")] | None = None


class Trial(Model):
    """A request to try."""

    sandbox: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    method: Annotated[str, StringConstraints(pattern="^[A-Za-z]{1,32}$")] = "GET"
    url: Annotated[str, StringConstraints(min_length=1, max_length=8192)]
    headers: Annotated[dict[str, str], Field(max_length=100)] = {}


class Trials(Model):
    """A policy to try on what is recorded."""

    policy: Rules
    last: Annotated[int, Field(ge=1, le=10_000, description="recorded requests to look at, newest first")] = 1000


class Decision(Model):
    """One answer for all requests of a batch, or one for each."""

    approve: bool | Annotated[list[bool], Field(min_length=1, max_length=50)]
    reason: Annotated[str, StringConstraints(max_length=1024)] = ""
    key_id: Annotated[str, StringConstraints(max_length=256)] | None = None
    signature: Annotated[str, StringConstraints(max_length=1024)] | None = None


@router.get("/egress/rules", responses=answers(200, {"type": "object"}, *IN_PROJECT))
async def get_rules(request: Request, project: ProjectName, _: Reader) -> Response:
    """The policy in force and its version."""
    return json_response(await egress_of(request).rules(project))


@router.put("/egress/rules", responses=answers(200, {"type": "object"}, *IN_PROJECT, *WITH_BODY, "PAYLOAD_TOO_LARGE"))
async def put_rules(request: Request, project: ProjectName, body: Rules, who: Ruler) -> Response:
    """Replaces the policy; it holds from the next request on, and tunnels that lost leave are cut."""
    return json_response(await egress_of(request).set_rules(who, project, _plain(body)))


def _plain(rules: Rules) -> dict[str, Any]:
    return {k: v for k, v in rules.model_dump(by_alias=True).items() if v is not None}


_LOG = answers(200, listing("events", ref("Event")), *IN_PROJECT)
_LOG[200]["content"] |= {"text/event-stream": {"schema": {"type": "string"}}}


@router.get("/egress/log", responses=_LOG)
async def audit(
    request: Request,
    project: ProjectName,
    _: Reader,
    after: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 500,
    follow: bool = False,
    last_event_id: Annotated[int, Header(ge=0, le=MAX_OFFSET)] = 0,
) -> Response:
    """The audit, oldest first; with `follow`, history and then live as Server-Sent Events whose ids are offsets."""
    streams = services_of(request).streams
    if follow:
        return EventStream(_followed(streams, project, last_event_id or after))
    if await streams.head(project, LOG) is None:
        return json_response({"events": []})
    return json_response({"events": await streams.read(project, LOG, after=after, limit=limit)})


async def _followed(streams: Streams, project: str, after: int) -> AsyncIterator[bytes]:
    while await streams.head(project, LOG) is None:
        await asyncio.sleep(_PAUSE)  # nothing was ever asked for; looking does not make the stream
    async for event in streams.follow(project, LOG, after=after):
        if isinstance(event, Gap):
            yield message(_encoder.encode(event), event="gap")
        else:
            yield message(_encoder.encode(event), last_id=event.offset)


@router.post(
    "/egress/test",
    responses=answers(200, {"type": "object"}, *IN_PROJECT, *WITH_BODY, "GATEWAY_UNAVAILABLE"),
)
async def trial(request: Request, project: ProjectName, body: Trial, _: Reader) -> Response:
    """What this request would meet: verdict, rule, reason, secret, lane; nothing is sent or looked up."""
    found = await egress_of(request).trial(project, body.sandbox, body.method, body.url, list(body.headers.items()))
    return json_response(found)


@router.post("/egress/replay", responses=answers(200, ref("Replay"), *IN_PROJECT, *WITH_BODY, "PAYLOAD_TOO_LARGE"))
async def replay(request: Request, project: ProjectName, body: Trials, _: Reader) -> Response:
    """What this policy would have done to the last recorded requests; nothing changes."""
    return json_response(await egress_of(request).replay(project, _plain(body.policy), body.last))


_HOSTS = answers(200, listing("hosts", {"type": "object"}), *IN_PROJECT, "GATEWAY_UNAVAILABLE")


@router.get("/egress/hosts", responses=_HOSTS)
async def hosts(request: Request, project: ProjectName, _: Reader) -> Response:
    """Requests, denials and bytes per host since the gateway started, the busiest first."""
    return json_response({"hosts": await egress_of(request).hosts(project)})


@router.get("/approvals", responses=answers(200, listing("approvals", ref("ApprovalView")), *IN_PROJECT))
async def list_approvals(
    request: Request,
    project: ProjectName,
    _: Reader,
    status: Annotated[str | None, Query(pattern="^(open|approved|rejected|mixed|expired|withdrawn)$")] = None,
) -> Response:
    """What waits, and the last thousand that did, newest first."""
    return json_response({"approvals": await egress_of(request).approvals.list(project, status=status)})


@router.get("/approvals/{id}", responses=answers(200, ref("ApprovalView"), *IN_PROJECT, "NOT_FOUND"))
async def get_approval(request: Request, project: ProjectName, id: ApprovalId, _: Reader) -> Response:
    """One batch."""
    return json_response(await egress_of(request).approvals.get(project, id))


@router.post(
    "/approvals/{id}",
    responses=answers(
        200, ref("ApprovalView"), *IN_PROJECT, *WITH_BODY, "NOT_FOUND", "RESOURCE_BUSY", "GATEWAY_UNAVAILABLE"
    ),
)
async def decide(request: Request, project: ProjectName, id: ApprovalId, body: Decision, who: Ruler) -> Response:
    """Answers a batch; the first answer counts."""
    found = await egress_of(request).approvals.decide(
        who, project, id, body.approve, reason=body.reason, key_id=body.key_id, signature=body.signature
    )
    return json_response(found)
