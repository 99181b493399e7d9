"""Owns the previews' page of a sandbox: which ports are exposed, where they are seen, exposing and revoking.

Called by console/app.py. Invariant: looking wakes nothing; a preview opens in a window that knows nothing of this one.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from kennel.api.console.forms import checked
from kennel.api.console.sandbox import frame, path
from kennel.api.console.visit import Visit, get, post
from kennel.api.failures import invalid
from kennel.api.routes import ports
from kennel.api.services import running_of


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) <= 65535):
        raise invalid({"port": ["a number from 1 to 65535"]})
    return int(text)


def _back(visit: Visit, notice: str) -> Response:
    return visit.go(visit.url("sandboxes", visit.request.path_params["name"], "previews"), notice)


@get("/sandboxes/{name}/previews")
async def page(visit: Visit) -> Response:
    """The page."""
    shown = await frame(visit)
    name = shown["view"].name
    found = await running_of(visit.request).ports.list(visit.project, path(visit))
    rows: list[dict[str, Any]] = [ports.shown(visit.request, visit.project, name, one) for one in found]
    return visit.page("previews.html", previews=rows, **shown)


@post("/sandboxes/{name}/previews", "exec")
async def expose(visit: Visit) -> Response:
    """Gives a port a preview."""
    words = {"port": _number(visit.form.text("port").strip()), "name": visit.form.text("name").strip() or None,
             "wake": visit.form.flag("wake")}  # fmt: skip
    body = checked(ports.ExposeRequest, words)
    await running_of(visit.request).ports.expose(
        visit.who, visit.project, path(visit), body.port, name=body.name, wake=body.wake
    )
    return _back(visit, f"Port {body.port} has a preview.")


@post("/sandboxes/{name}/previews/{port}/revoke", "exec")
async def revoke(visit: Visit) -> Response:
    """Takes a preview away for good."""
    port = _number(visit.request.path_params["port"])
    await running_of(visit.request).ports.revoke(visit.who, visit.project, path(visit), port)
    return _back(visit, f"The preview of port {port} is void.")


routes: list[BaseRoute] = [page, expose, revoke]
