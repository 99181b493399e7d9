"""Owns the routes of projects, the tenants. Invariant: only an admin key of the installation reaches them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import StringConstraints
from starlette.responses import Response

from kennel.api.access import administrator
from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.fields import Model
from kennel.api.openapi import WITH_BODY, answers, listing
from kennel.api.services import services_of
from kennel.domain.principal import Principal

router = APIRouter(prefix="/v1/projects", tags=["projects"], route_class=StrictRoute)

Admin = Annotated[Principal, Depends(administrator)]

_PROJECT = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


class CreateProject(Model):
    """A new tenant: 1–63 of a–z, 0–9 and dash, no dash at the ends."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")]


@router.post("", status_code=201, responses=answers(201, _PROJECT, *WITH_BODY, "PROJECT_EXISTS"))
async def create(request: Request, body: CreateProject, who: Admin) -> Response:
    """Makes a project."""
    return json_response(await services_of(request).projects.create(who, body.name), 201)


@router.get("", responses=answers(200, listing("projects", _PROJECT)))
async def list_all(request: Request, who: Admin) -> Response:
    """Every project."""
    return json_response({"projects": await services_of(request).projects.list(who)})
