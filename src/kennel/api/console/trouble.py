"""Owns how a refusal looks in the console: a page, or a notice where a script asked for a piece.

Called by console/app.py for every exception. Invariant: it shows the error's text, code and hint, never an unexpected
exception's text.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kennel.api.access import allow
from kennel.api.console.rendering import render
from kennel.api.console.visit import SESSION, Visit, chrome, home_project
from kennel.api.gate import PRINCIPAL
from kennel.api.services import services_of
from kennel.domain.membership import Guest
from kennel.wire.errors import KennelError, error

logger = logging.getLogger("kennel.api.console")


async def refused(request: Request, failure: Exception) -> Response:
    """A typed error, as a page or as a notice."""
    assert isinstance(failure, KennelError)
    if request.headers.get("hx-request") == "true":
        # The piece that was asked for stays as it is; what went wrong is said at the top.
        heading = {"hx-retarget": "#notices", "hx-reswap": "innerHTML"}
        return HTMLResponse(render("problem.html", failure=failure, fields=fields(failure)), failure.status, heading)
    visit = await _visit(request)
    context = chrome(request, visit)
    return HTMLResponse(
        render("refusal.html", visit=visit, failure=failure, fields=fields(failure), **context), failure.status
    )


async def not_found(request: Request, failure: Exception) -> Response:
    """An address that is none; or a method that a page has not."""
    assert isinstance(failure, HTTPException)
    if failure.status_code == 405:
        return await refused(request, error("METHOD_NOT_ALLOWED", "This address is for a form, not for a visit."))
    return await refused(request, error("NOT_FOUND", "There is no such page."))


class Caught:
    """The layer inside the door that turns a bug into a page with an id, which the log has too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = scope["type"] != "http"  # a socket has no page to show

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception:
            if started:
                raise  # half an answer cannot be taken back
            request, number = Request(scope, receive), uuid.uuid4().hex
            logger.exception("console request %s failed: %s %s", number, request.method, scope["path"][:200])
            bug = error("INTERNAL_ERROR", "Something is wrong with Kennel.", hint=f"the log names it: request {number}")
            await (await refused(request, bug))(scope, receive, send)


async def _visit(request: Request) -> Visit | None:
    """Whose page it is, with a project this visitor may see; None before the login."""
    if SESSION not in request.scope:
        return None
    who = request.scope[PRINCIPAL]
    project = request.path_params.get("project", home_project(who))
    if not isinstance(who, Guest):
        try:
            await allow("read")(request, project)
        except KennelError:
            project = home_project(who)
    elif project != who.project:
        project = home_project(who)
    return Visit(request, services_of(request), request.scope[SESSION], who, project)


def fields(failure: KennelError) -> dict[str, Any]:
    """Messages by field, when the error has them."""
    details = failure.details
    if failure.code == "VALIDATION_FAILED" and isinstance(details, dict):
        return {name: told for name, told in details.items() if isinstance(told, list)}
    return {}
