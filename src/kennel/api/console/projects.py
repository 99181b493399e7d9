"""Owns the page of projects, the tenants. Invariant: only an admin key of the installation reaches it."""

from __future__ import annotations

from starlette.responses import Response

from kennel.api.access import administrator
from kennel.api.console.forms import checked
from kennel.api.console.rendering import ROOT
from kennel.api.console.trouble import fields
from kennel.api.console.visit import Visit, get, post
from kennel.api.routes.projects import CreateProject
from kennel.wire.errors import KennelError


async def _show(visit: Visit, status: int = 200, failure: KennelError | None = None) -> Response:
    projects = await visit.services.projects.list(visit.who)
    errors = fields(failure) if failure is not None else {}
    if failure is not None and not errors:
        errors = {"name": [failure.message]}
    return visit.page("projects.html", status, projects=projects, typed=visit.form, errors=errors)


@get("/projects", "admin")
async def page(visit: Visit) -> Response:
    """The page."""
    await administrator(visit.request)
    return await _show(visit)


@post("/projects", "admin")
async def create(visit: Visit) -> Response:
    """Makes a project and goes there."""
    await administrator(visit.request)
    try:
        body = checked(CreateProject, {"name": visit.form.text("name").strip()})
        await visit.services.projects.create(visit.who, body.name)
    except KennelError as failure:
        return await _show(visit, failure.status, failure)
    return visit.go(f"{ROOT}/p/{body.name}/sandboxes", f"Project {body.name} was created.")


routes = [page, create]
