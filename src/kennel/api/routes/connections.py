"""Owns the routes of GitHub connections. Invariant: no answer holds material."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import StringConstraints
from starlette.responses import Response

from kennel.api.access import allow
from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.fields import Model, ProjectName
from kennel.api.openapi import IN_PROJECT, WITH_BODY, answers, listing, ref
from kennel.api.services import egress_of
from kennel.domain.principal import Principal

router = APIRouter(prefix="/v1/projects/{project}/connections/github", tags=["secrets"], route_class=StrictRoute)

Owner = Annotated[Principal, Depends(allow("secrets"))]
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Short = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


class PutConnection(Model):
    """A token, or an app's installation: its ids and its private key (PEM), of which tokens are made when needed."""

    token: Short | None = None
    app_id: Short | None = None
    installation_id: Short | None = None
    private_key: Annotated[str, StringConstraints(min_length=1, max_length=8192)] | None = None


@router.get("", responses=answers(200, listing("connections", ref("ConnectionView")), *IN_PROJECT))
async def list_connections(request: Request, project: ProjectName, _: Owner) -> Response:
    """Every connection, by name; the first is planted in sandboxes."""
    return json_response({"connections": await egress_of(request).connections.list(project)})


@router.put(
    "/{name}", responses=answers(200, ref("ConnectionView"), *IN_PROJECT, *WITH_BODY, "QUOTA_EXCEEDED",
                                 "GATEWAY_UNAVAILABLE", "OFFSET_CONFLICT"),
)  # fmt: skip
async def put_connection(
    request: Request, project: ProjectName, name: Name, body: PutConnection, who: Owner
) -> Response:
    """Makes or replaces a connection; its material becomes the secret `/secrets/integrations/github/{name}`."""
    found = await egress_of(request).connections.put(
        who, project, name, token=body.token, app_id=body.app_id, installation_id=body.installation_id,
        private_key=body.private_key,
    )  # fmt: skip
    return json_response(found)


@router.get("/{name}", responses=answers(200, ref("ConnectionView"), *IN_PROJECT, "NOT_FOUND"))
async def get_connection(request: Request, project: ProjectName, name: Name, _: Owner) -> Response:
    """One connection."""
    return json_response(await egress_of(request).connections.get(project, name))


@router.delete("/{name}", status_code=204, responses=answers(204, None, *IN_PROJECT, *WITH_BODY, "NOT_FOUND"))
async def remove_connection(request: Request, project: ProjectName, name: Name, who: Owner) -> Response:
    """Forgets a connection and its secret."""
    await egress_of(request).connections.remove(who, project, name)
    return Response(status_code=204)
