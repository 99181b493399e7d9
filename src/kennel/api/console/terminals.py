"""Owns the terminals' page of a sandbox: which are open, the socket of one, and hanging up.

Called by console/app.py; the screen itself is drawn by static/terminal.js, in the rooms' page too. Invariants: looking
opens no terminal and wakes nothing; a socket ends after LIFE_SECONDS and comes back where it left off, so that who may
drive is asked again. An observer's socket is another than a driver's, and takes no keys.
"""

from __future__ import annotations

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.websockets import WebSocket

from kennel.api.console.live import LIFE_SECONDS
from kennel.api.console.sandbox import frame, path
from kennel.api.console.visit import Visit, get, post, socket
from kennel.api.routes import terminals
from kennel.api.services import running_of
from kennel.domain.principal import Principal
from kennel.domain.process import TerminalFacts
from kennel.wire.errors import error


async def open_ones(visit: Visit, where: str) -> list[TerminalFacts]:
    """Those that a person can go on with; none in a sandbox that sleeps."""
    found = await running_of(visit.request).terminals.list(visit.project, where)
    return [one for one in found if one.exit is None]


@get("/sandboxes/{name}/terminal", "exec")
async def page(visit: Visit) -> Response:
    """The page."""
    shown = await frame(visit)
    return visit.page("terminal.html", terminals=await open_ones(visit, path(visit)), **shown)


@get("/sandboxes/{name}/terminals", "exec", link="exec")
async def listing(visit: Visit) -> Response:
    """Which are open, as JSON: a page whose socket was refused asks what became of its terminal."""
    view = await visit.services.sandboxes.get(visit.project, path(visit))
    found = await open_ones(visit, path(visit))
    told = [{"id": one.id, "command": one.command, "runtime": one.runtime} for one in found]
    return JSONResponse({"status": view.status, "terminals": told})


@get("/sandboxes/{name}/watched", "exec", link="read")
async def watched(visit: Visit) -> Response:
    """Which an onlooker may see, with their sides, as JSON."""
    found = await open_ones(visit, path(visit))
    told = [{"id": one.id, "runtime": one.runtime, "cols": one.columns, "rows": one.rows} for one in found]
    return JSONResponse({"terminals": told})


@socket("/sandboxes/{name}/watched/{terminal}", "exec", link="read")
async def onlooker(websocket: WebSocket, _: Principal, project: str) -> None:
    """The terminal for somebody who only looks."""
    words = websocket.path_params
    await terminals.watch(websocket, project, words["name"], words["terminal"], seconds=LIFE_SECONDS)


@socket("/sandboxes/{name}/terminals/{terminal}", "exec", link="exec")
async def screen(websocket: WebSocket, who: Principal, project: str) -> None:
    """The terminal itself, in the API's own frames."""
    words = websocket.path_params
    await terminals.serve(websocket, who, project, words["name"], words["terminal"], seconds=LIFE_SECONDS)


@post("/sandboxes/{name}/terminals/{terminal}/close", "exec", link="exec")
async def close(visit: Visit) -> Response:
    """Hangs up on what runs on it."""
    terminal = visit.request.path_params["terminal"]
    if not terminals.TERMINAL.fullmatch(terminal):
        raise error("TERMINAL_NOT_FOUND", "There is no terminal of this name.")
    await running_of(visit.request).terminals.close(visit.project, path(visit), terminal)
    return visit.go(visit.url("sandboxes", visit.request.path_params["name"], "terminal"), "The terminal was closed.")


routes: list[BaseRoute] = [page, listing, screen, watched, onlooker, close]
