"""Owns the application: the layers a request passes and the routes it can reach.

Called by assemble, which serves it, and by tests. Invariant: the order of layers is failures, door, room paths, body,
routes, so that nothing is read from a caller before its key was looked at.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from kennel.api.answers import json_response
from kennel.api.body import BodyLimit
from kennel.api.console.app import mount_console
from kennel.api.failures import CatchAll, install_handlers
from kennel.api.gate import Gate
from kennel.api.openapi import document
from kennel.api.room_access import LinkDoor
from kennel.api.routes import (
    archives,
    audit,
    backups,
    connections,
    contexts,
    egress,
    exec_stream,
    file_changes,
    files,
    git,
    health,
    images,
    keys,
    mounts,
    observation,
    ports,
    processes,
    projects,
    rooms,
    sandboxes,
    secrets,
    sessions,
    snapshots,
    streams,
    terminals,
    usage,
    watches,
)
from kennel.api.routes import exec as exec_routes
from kennel.api.services import ApiSettings, Services
from kennel.api.usage import Usage

# Looked through in this order, so what is asked most stands first.
_NOUNS = (
    health,
    exec_routes,
    rooms,
    files,
    observation,
    snapshots,
    backups,
    sandboxes,
    usage,
    sessions,
    projects,
    keys,
    images,
    archives,
    audit,
    exec_stream,
    processes,
    terminals,
    contexts,
    ports,
    mounts,
    file_changes,
    watches,
    git,
    streams,
    secrets,
    connections,
    egress,
)


def _version() -> str:
    try:
        return version("kennel")
    except PackageNotFoundError:
        return "0"


def create_app(services: Services, settings: ApiSettings) -> FastAPI:
    """The whole public API over these services."""
    app = FastAPI(
        title="Kennel", version=_version(), openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.services = services
    app.state.preview_base = settings.preview_base
    app.state.usage = Usage(services.usage) if services.usage is not None else None
    for noun in _NOUNS:
        app.include_router(noun.router)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(_: Request) -> Response:
        """This API's own description."""
        return json_response(document(app))

    mount_console(app, services, settings)
    routes = [route for router in (app.router, *(n.router for n in _NOUNS)) for route in router.routes]
    app.state.known_routes = [route for route in routes if isinstance(route, Route)]
    app.state.known_sockets = [route for route in routes if isinstance(route, WebSocketRoute)]
    install_handlers(app)
    # The last one added is the outermost.
    app.add_middleware(BodyLimit)
    app.add_middleware(rooms.RawRoomPath)
    app.add_middleware(Gate, keys=services.keys, settings=settings, links=LinkDoor(services.rooms))
    app.add_middleware(CatchAll)
    return app
