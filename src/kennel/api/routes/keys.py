"""Owns the routes of keys. Invariants: a key's token is in one answer only; a key of a project manages only its own."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field, StringConstraints
from starlette.responses import Response

from kennel.api.access import key_holder
from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.fields import Model
from kennel.api.openapi import IN_PROJECT, WITH_BODY, answers, listing
from kennel.api.services import services_of
from kennel.domain.principal import Principal
from kennel.wire.errors import error

router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=StrictRoute)

Holder = Annotated[Principal, Depends(key_holder)]
Project = Annotated[str, StringConstraints(min_length=1, max_length=63)]
Scope = Literal["read", "exec", "files", "lifecycle", "secrets", "policy", "admin"]
KeyId = Annotated[str, Path(alias="keyId", pattern=r"^[A-Za-z0-9_-]{1,64}$")]

_KEY = {"type": "object"}
_CREATED = {
    "type": "object",
    "required": ["token", "key"],
    "properties": {"token": {"type": "string", "description": "shown once"}, "key": _KEY},
}


class CreateKey(Model):
    """A new key; without `project` one of the installation."""

    project: Project | None = None
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=16)]
    name: Annotated[str, StringConstraints(max_length=128)] = ""


def _reach(who: Principal, project: str | None) -> str | None:
    """The project asked for, or the holder's own; a holder reaches no other."""
    if who.project is None:
        return project
    if project not in (None, who.project):
        raise error("PROJECT_NOT_FOUND", "no such project")
    return who.project


@router.post("", status_code=201, responses=answers(201, _CREATED, *IN_PROJECT, *WITH_BODY))
async def create(request: Request, body: CreateKey, who: Holder) -> Response:
    """Makes a key and shows its token, once."""
    project = _reach(who, body.project)
    token, key = await services_of(request).keys.create(
        who, project=project, scopes=list(dict.fromkeys(body.scopes)), name=body.name
    )
    return json_response({"token": token, "key": key}, 201)


@router.get("", responses=answers(200, listing("keys", _KEY), *IN_PROJECT))
async def list_all(
    request: Request, who: Holder, project: Annotated[str | None, Query(max_length=63)] = None
) -> Response:
    """The keys of a project, or all of them for the installation's holder; never a token."""
    return json_response({"keys": await services_of(request).keys.list(who, _reach(who, project))})


@router.delete("/{keyId}", status_code=204, responses=answers(204, None, *WITH_BODY, "KEY_NOT_FOUND"))
async def revoke(request: Request, key_id: KeyId, who: Holder) -> Response:
    """Ends a key; requests that carry it are refused from the next one on."""
    await services_of(request).keys.revoke(who, key_id)
    return Response(status_code=204)
