"""Owns the routes of secrets: storing, looking at where they may go, removing. Invariant: no answer holds material."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Path, Request
from pydantic import Field, StringConstraints
from starlette.responses import Response

from kennel.api.access import allow
from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.fields import Model, ProjectName
from kennel.api.openapi import IN_PROJECT, WITH_BODY, answers, listing, ref
from kennel.api.services import egress_of
from kennel.domain.principal import Principal
from kennel.wire.egress import Pin, Refresh

router = APIRouter(prefix="/v1/projects/{project}", tags=["secrets"], route_class=StrictRoute)

Owner = Annotated[Principal, Depends(allow("secrets"))]
Name = Annotated[str, Path(description="the secret's path without `/secrets/`", max_length=512)]
Short = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


class RefreshBy(Model):
    """How the gateway gets new material: what it gets is the field `accessToken` of the secret."""

    strategy: Literal["oauth-refresh-token", "oauth-client-credentials", "github-app-installation"]
    endpoint: Short
    scope: Annotated[str, StringConstraints(max_length=1024)] = ""


class PutSecret(Model):
    """A secret's material and where it may go: `origins` like `https://api.example.com`, the rest narrows them."""

    material: Annotated[str, StringConstraints(max_length=16_384)] | dict[str, Any]
    origins: Annotated[list[Short], Field(min_length=1, max_length=32)]
    methods: Annotated[list[Short], Field(min_length=1, max_length=20)] | None = None
    path_prefix: Annotated[str, StringConstraints(pattern="^/", max_length=1024)] | None = None
    headers: Annotated[list[Short], Field(min_length=1, max_length=20)] | None = None
    refresh: RefreshBy | None = None


@router.get("/secrets", responses=answers(200, listing("secrets", ref("SecretView")), *IN_PROJECT))
async def list_secrets(request: Request, project: ProjectName, _: Owner) -> Response:
    """Every secret's view, by path; never its material."""
    return json_response({"secrets": await egress_of(request).secrets.list(project)})


@router.put(
    "/secrets/{name:path}",
    responses=answers(
        200, ref("SecretView"), *IN_PROJECT, *WITH_BODY, "QUOTA_EXCEEDED", "GATEWAY_UNAVAILABLE", "OFFSET_CONFLICT"
    ),
)
async def put(request: Request, project: ProjectName, name: Name, body: PutSecret, who: Owner) -> Response:
    """Stores or replaces a secret; its new pin is complete, nothing of the earlier one stays."""
    given = {k: v for k, v in body.model_dump(by_alias=True).items() if k not in ("material", "refresh") and v}
    pin = msgspec.convert(given, Pin)
    refresh = None if body.refresh is None else Refresh(**body.refresh.model_dump())
    found = await egress_of(request).secrets.put(who, project, f"/secrets/{name}", body.material, pin, refresh)
    return json_response(found)


@router.get("/secrets/{name:path}", responses=answers(200, ref("SecretView"), *IN_PROJECT, "SECRET_NOT_FOUND"))
async def describe(request: Request, project: ProjectName, name: Name, _: Owner) -> Response:
    """Where a secret may go and how it has been used."""
    return json_response(await egress_of(request).secrets.get(project, f"/secrets/{name}"))


@router.delete(
    "/secrets/{name:path}", status_code=204, responses=answers(204, None, *IN_PROJECT, *WITH_BODY, "SECRET_NOT_FOUND")
)
async def remove(request: Request, project: ProjectName, name: Name, who: Owner) -> Response:
    """Forgets a secret; requests that name it are refused from the next one on."""
    await egress_of(request).secrets.remove(who, project, f"/secrets/{name}")
    return Response(status_code=204)
