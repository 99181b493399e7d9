"""Owns `GET /v1/images`: what a sandbox can be made of here. Invariant: listing builds and fetches nothing."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from kennel.api.access import allow_in_own
from kennel.api.answers import json_response
from kennel.api.openapi import IN_PROJECT, answers, listing
from kennel.api.services import services_of

router = APIRouter(prefix="/v1/images", tags=["images"])


@router.get("", responses=answers(200, listing("images", {"type": "object"}), *IN_PROJECT, "NODE_UNAVAILABLE"))
async def list_all(request: Request) -> Response:
    """The images on this installation's node."""
    await allow_in_own(request, "read")
    return json_response({"images": await services_of(request).images()})
