"""Owns the console as an application of its own: its routes, its door, its static files.

Called by api/app.py. Invariant: it reaches the system through the same services as the JSON API and
nothing else.
"""

from __future__ import annotations

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from kennel.api.console import (
    approvals,
    backups,
    commands,
    configuration,
    egress,
    files,
    images,
    keys,
    lifecycle,
    login,
    node,
    overview,
    people,
    plots,
    points,
    previews,
    processes,
    projects,
    room,
    room_files,
    rooms,
    sandbox,
    secrets,
    snapshots,
    streams,
    talk,
    terminals,
    trouble,
)
from kennel.api.console.door import Door
from kennel.api.console.rendering import ROOT, STATIC
from kennel.api.console.session import Sessions
from kennel.api.services import ApiSettings, Services
from kennel.api.usage import Usage
from kennel.wire.errors import KennelError, error

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_NOUNS = (
    overview, lifecycle, configuration, commands, sandbox, terminals, processes, files, snapshots, points, backups,
    previews, plots, rooms, room, room_files, talk, people, egress, approvals, secrets, streams, images, keys,
    projects, node,
)  # fmt: skip


class _Static(StaticFiles):
    """Files whose address changes with their content."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response

    async def get_response(self, path: str, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405)
        return await super().get_response(path, scope)


def create_console(services: Services, settings: ApiSettings, version: str) -> Starlette:
    """The console over these services, to be mounted at `/console`."""
    sessions = Sessions(services.sessions)
    console = Starlette(
        routes=[
            Route("/", login.home, methods=["GET"]),
            Route("/login", login.show, methods=["GET"]),
            Route("/join", login.invited, methods=["GET"]),
            login.enter(sessions),
            login.leave(sessions),
            Mount("/static", _Static(directory=STATIC)),
            *(route for noun in _NOUNS for route in noun.routes),
        ],
        middleware=[
            Middleware(Door, services=services, sessions=sessions, open_door=settings.open),
            Middleware(trouble.Caught),
        ],
        exception_handlers={KennelError: trouble.refused, HTTPException: trouble.not_found},
    )
    console.router.redirect_slashes = False
    console.state.services, console.state.version = services, version
    console.state.preview_base = settings.preview_base
    console.state.usage = Usage(services.usage) if services.usage is not None else None
    return console


def mount_console(app: FastAPI, services: Services, settings: ApiSettings) -> None:
    """Puts the console below `/console`, and the way to it at `/`."""
    app.add_route("/", _front_door, methods=list(_METHODS), include_in_schema=False)
    app.add_route(ROOT, _front_door, methods=list(_METHODS), include_in_schema=False)
    app.mount(ROOT, create_console(services, settings, app.version))


async def _front_door(request: Request) -> Response:
    """`GET /` and `GET /console` lead a browser to the console; anything else has no business there."""
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(f"{ROOT}/", 303)
    raise error("NOT_FOUND", "no such route")
