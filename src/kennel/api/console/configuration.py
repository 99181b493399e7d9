"""Owns the settings of a sandbox's page: its environment, when it sleeps, its labels.

Called by console/app.py. Invariant: what a form does not name stays; an unset variable is gone, not empty.
"""

from __future__ import annotations

from starlette.responses import Response

from kennel.api.console.forms import assignments, checked
from kennel.api.console.sandbox import path, state
from kennel.api.console.visit import Visit, post
from kennel.api.failures import invalid
from kennel.api.routes.sandboxes import UpdateSandbox
from kennel.domain.idle import DEFAULT_SECONDS
from kennel.wire.results import SandboxView


async def _done(visit: Visit, view: SandboxView, piece: str) -> Response:
    if visit.partial:
        return visit.piece(piece, saved=True, **await state(visit, view))
    return visit.go(visit.url("sandboxes", view.name))


@post("/sandboxes/{name}/env", "lifecycle")
async def environment(visit: Visit) -> Response:
    """Sets one variable, or unsets it."""
    name = visit.form.text("variable").strip()
    if not name:
        raise invalid({"env": ["a variable needs a name"]})
    value = None if visit.form.text("do") == "unset" else visit.form.text("value")
    view = await visit.services.sandboxes.set_env(visit.who, visit.project, path(visit), {name: value})
    return await _done(visit, view, "environment.html")


@post("/sandboxes/{name}/settings", "lifecycle")
async def settings(visit: Visit) -> Response:
    """Idle time, keep-alive and labels."""
    sleep_after = visit.form.text("sleepAfter").strip() or f"{DEFAULT_SECONDS:.0f}s"
    body = checked(
        UpdateSandbox,
        {
            "sleepAfter": sleep_after,
            "keepAlive": visit.form.flag("keepAlive"),
            "labels": assignments("labels", visit.form.text("labels")),
        },
    )
    view = await visit.services.sandboxes.update(
        visit.who, visit.project, path(visit), sleep_after=body.sleep_after, keep_alive=body.keep_alive,
        labels=body.labels,
    )  # fmt: skip
    return await _done(visit, view, "settings.html")


routes = [environment, settings]
