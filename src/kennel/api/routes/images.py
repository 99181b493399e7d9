"""Owns `GET /v1/images`: what a sandbox can be made of here. Invariant: listing builds and fetches nothing."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from kennel.api.access import InProject, allow_in_own
from kennel.api.answers import json_response
from kennel.api.openapi import IN_PROJECT, answers, listing
from kennel.api.services import services_of

router = APIRouter(prefix="/v1/images", tags=["images"])


@router.get("", responses=answers(200, listing("images", {"type": "object"}), *IN_PROJECT, "NODE_UNAVAILABLE"))
async def list_all(request: Request, _: Annotated[InProject, Depends(allow_in_own("read"))]) -> Response:
    """The images on this installation's node."""
    return json_response({"images": await services_of(request).images()})
