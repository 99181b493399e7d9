"""Owns `GET /health`, the one route that needs no key. Invariant: it says nothing but whether Kennel serves."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from kennel.api.openapi import Responses
from kennel.api.services import services_of

router = APIRouter(tags=["health"])

_RESPONSES: Responses = {
    200: {"description": "serving", "content": {"text/plain": {"schema": {"const": "ok"}}}},
    503: {"description": "starting or stopping", "content": {"text/plain": {"schema": {"const": "unavailable"}}}},
}


@router.get("/health", responses=_RESPONSES, response_class=PlainTextResponse)
async def health(request: Request) -> Response:
    """`ok` while this installation serves; needs no key."""
    if services_of(request).healthy():
        return PlainTextResponse("ok")
    return PlainTextResponse("unavailable", 503)


@router.head("/health", include_in_schema=False)
async def health_head(request: Request) -> Response:
    """The same for probes that ask by HEAD."""
    return await health(request)
