"""Owns the lifecycle forms of a sandbox's page: start, sleep, restart, renew, kill, destroy.

Called by console/app.py. Invariant: a destroy needs the name typed by hand, and the server is the one that compares.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.responses import Response

from kennel.api.console.sandbox import VERBS, path, state
from kennel.api.console.visit import Visit, post
from kennel.api.failures import invalid
from kennel.domain.names import name_of
from kennel.domain.principal import Principal
from kennel.wire.errors import error
from kennel.wire.results import SandboxView

Turn = Callable[[Principal, str, str], Awaitable[SandboxView]]
_WORDS = {verb for verb, *_ in VERBS}


@post("/sandboxes/{name}/turn/{verb}", "lifecycle")
async def turn(visit: Visit) -> Response:
    """One verb; answers when it is done, with the new state."""
    verb, where = visit.request.path_params["verb"], path(visit)
    if verb not in _WORDS:
        raise error("NOT_FOUND", "There is no such verb.")
    act: Turn = getattr(visit.services.sandboxes, verb)
    view = await act(visit.who, visit.project, where)
    if visit.partial:
        return visit.piece("state.html", **await state(visit, view))
    return visit.go(visit.url("sandboxes", view.name))


@post("/sandboxes/{name}/destroy", "lifecycle")
async def destroy(visit: Visit) -> Response:
    """Tears it down for good, if the name was typed."""
    where = path(visit)
    name = name_of(where)
    if visit.form.text("confirm").strip() != name:
        raise invalid({"confirm": [f"type {name} to destroy it"]})
    await visit.services.sandboxes.destroy(visit.who, visit.project, where)
    return visit.go(visit.url("sandboxes"), f"{name} was destroyed. Its name is retired.")


routes = [turn, destroy]
