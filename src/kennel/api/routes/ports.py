"""Owns the routes of ports: which have a preview, waiting for one, and reaching one with the key.

Called by app.py. Invariants: exposing, listing and revoking wake nothing; a revoked preview is void from the answer on;
a proxied request carries the caller's words and nothing of Kennel's.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Path, Query, Request, WebSocket
from pydantic import Field, StringConstraints
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kennel.api.access import allow, check
from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.bridge import Bridge
from kennel.api.fields import INTEGRAL, Model, ProjectName, SandboxName
from kennel.api.forwarding import Forwarding
from kennel.api.hangup import unless_hung_up
from kennel.api.openapi import IN_PROJECT, OF_NODE, OF_SANDBOX, WITH_BODY, answers, listing
from kennel.api.raw_path import ANYTHING
from kennel.api.routes.processes import DEFAULT_WAIT_MS, TimeoutMs
from kennel.api.services import running_of
from kennel.api.sockets import refuse
from kennel.control.exposed import Preview
from kennel.domain.names import path_of
from kennel.domain.preview import Base
from kennel.domain.principal import Principal
from kennel.wire.errors import KennelError, error

router = APIRouter(prefix="/v1/projects/{project}/sandboxes/{name}", tags=["ports"], route_class=StrictRoute)

Reader = Annotated[Principal, Depends(allow("read"))]
Runner = Annotated[Principal, Depends(allow("exec"))]
PortInPath = Annotated[int, Path(ge=1, le=65535)]
_PORT = {
    "type": "object",
    "required": ["port", "token", "url", "proxyPath"],
    "properties": {
        "port": {"type": "integer"},
        "token": {"type": "string"},
        "url": {"type": ["string", "null"]},
        "proxyPath": {"type": "string"},
        "name": {"type": ["string", "null"]},
        "wake": {"type": "boolean"},
        "createdAt": {"type": "string"},
    },
}
_OF_ALL = (*IN_PROJECT, *OF_SANDBOX)
_SEGMENTS = 8
"""Slashes before the server's own path: /v1/projects/P/sandboxes/N/proxy/PORT/…"""


class ExposeRequest(Model):
    """A port to be previewed; `wake` lets a preview's visitor wake the sandbox."""

    port: Annotated[int, Field(ge=1, le=65535), INTEGRAL]
    name: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    wake: bool = False


def shown(request: HTTPConnection, project: str, name: str, preview: Preview) -> dict[str, Any]:
    """A preview as callers see it."""
    base: Base | None = request.app.state.preview_base
    return {
        "port": preview.port,
        "name": preview.name,
        "token": preview.token,
        "wake": preview.wake,
        "createdAt": preview.created_at,
        "url": None if base is None else base.url(preview.port, preview.token),
        "proxyPath": f"/v1/projects/{project}/sandboxes/{name}/proxy/{preview.port}/",
    }


@router.post("/ports", status_code=201, responses=answers(201, _PORT, *_OF_ALL, *WITH_BODY, "RESOURCE_BUSY"))
async def expose(
    request: Request, project: ProjectName, name: SandboxName, body: ExposeRequest, who: Runner
) -> Response:
    """Gives a port a preview; the same again answers with the same one."""
    preview = await running_of(request).ports.expose(
        who, project, path_of(name), body.port, name=body.name, wake=body.wake
    )
    return json_response(shown(request, project, name, preview), 201)


@router.get("/ports", responses=answers(200, listing("ports", _PORT), *_OF_ALL))
async def list_all(request: Request, project: ProjectName, name: SandboxName, _: Reader) -> Response:
    """The ports that have a preview."""
    found = await running_of(request).ports.list(project, path_of(name))
    return json_response({"ports": [shown(request, project, name, preview) for preview in found]})


@router.get("/ports/{port}", responses=answers(200, _PORT, *_OF_ALL, "PORT_NOT_EXPOSED"))
async def show(request: Request, project: ProjectName, name: SandboxName, port: PortInPath, _: Reader) -> Response:
    """One port's preview."""
    return json_response(
        shown(request, project, name, await running_of(request).ports.get(project, path_of(name), port))
    )


@router.delete("/ports/{port}", status_code=204, responses=answers(204, None, *_OF_ALL, "GATEWAY_UNAVAILABLE"))
async def revoke(request: Request, project: ProjectName, name: SandboxName, port: PortInPath, who: Runner) -> Response:
    """Takes a port's preview away for good and cuts its visitors; the next one has another token.

    Without one nothing happens.
    """
    await running_of(request).ports.revoke(who, project, path_of(name), port)
    return Response(status_code=204)


@router.get(
    "/ports/{port}/wait",
    responses=answers(200, {"type": "object"}, *_OF_ALL, *OF_NODE, "PROCESS_READY_TIMEOUT"),
)
async def wait(
    request: Request,
    project: ProjectName,
    name: SandboxName,
    port: PortInPath,
    who: Runner,
    mode: Literal["tcp", "http"] = "tcp",
    path: Annotated[str, Query(max_length=2000)] = "/",
    timeout_ms: TimeoutMs = DEFAULT_WAIT_MS,
) -> Response:
    """Waits until anything in the sandbox accepts connections on the port, or answers HTTP there."""
    words: dict[str, Any] = {"port": port, "mode": mode} | ({"path": path} if mode == "http" else {})
    work = running_of(request).processes.wait_for_port(who, project, path_of(name), words, timeout=timeout_ms / 1000)
    return json_response(await unless_hung_up(request, work))


def _target(connection: HTTPConnection, port: int) -> tuple[str, str]:
    """The path and query for the server, as the caller wrote them, and what stands before them in this API's URL."""
    raw = bytes(connection.scope.get("raw_path") or b"").partition(b"?")[0].decode("latin-1")
    parts = raw.split("/", _SEGMENTS)
    routed = connection.path_params
    if [unquote(parts[at]) for at in (3, 5, 7)] != [routed["project"], routed["name"], str(port)]:
        raise error("NOT_FOUND", "no such route")
    query = connection.scope["query_string"].decode("latin-1")
    target = "/" + (parts[_SEGMENTS] if len(parts) > _SEGMENTS else "")
    return target + (f"?{query}" if query else ""), "/".join(parts[:_SEGMENTS])


class Forward(Response):
    """The exchange as an answer: connected before it begins, so that a refusal is one of this API's."""

    def __init__(self, who: Principal, project: str, name: str, port: int) -> None:
        super().__init__()
        self._asked = who, project, path_of(name), port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        who, project, path, port = self._asked
        request = Request(scope)
        target, prefix = _target(request, port)
        async with running_of(request).ports.connect(who, project, path, port) as wire:
            await Forwarding(wire, target.encode("latin-1"), prefix).run(scope, receive, send)


@router.api_route(
    "/proxy/{port}",
    methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
    include_in_schema=False,
)
@router.api_route(
    f"/proxy/{{port}}/{{rest:{ANYTHING}}}",
    methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
    include_in_schema=False,
)
async def proxy(project: ProjectName, name: SandboxName, port: PortInPath, who: Runner, rest: str = "") -> Response:
    """Passes a request on to whatever listens on the port, waking the sandbox; bodies stream both ways."""
    return Forward(who, project, name, port)


@router.websocket("/proxy/{port}")
@router.websocket(f"/proxy/{{port}}/{{rest:{ANYTHING}}}")
async def join(websocket: WebSocket, project: str, name: str, port: int, rest: str = "") -> None:
    """Joins a WebSocket with one of the server on the port."""
    try:
        who = await check(websocket, "exec", project)
        if not 1 <= port <= 65535:
            raise error("INVALID_PORT", "a port is a number from 1 to 65535")
        target, prefix = _target(websocket, port)
        async with running_of(websocket).ports.connect(who, project, path_of(name), port) as wire:
            bridge = Bridge(websocket, wire, target, prefix)
            await bridge.handshake()
            await bridge.run()
    except KennelError as failure:
        if websocket.client_state.name == "CONNECTING":
            await refuse(websocket.scope, websocket.send, failure)
        else:
            await websocket.close(1011, failure.code)
