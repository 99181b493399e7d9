"""Owns coming and going: the login page, which takes a key once and gives a session for it, and logging out.

Called by console/app.py. Invariants: the key is looked at and forgotten; the cookie is HttpOnly and SameSite=Strict;
where to go after it can only be a page of the console.
"""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from kennel.api.console.door import cookie_name
from kennel.api.console.forms import read_form
from kennel.api.console.rendering import ROOT, render
from kennel.api.console.session import MAX_AGE_SECONDS, Sessions
from kennel.api.console.visit import SESSION, chrome, home_project, require_token
from kennel.api.gate import MAX_TOKEN, PRINCIPAL
from kennel.api.services import services_of
from kennel.domain.principal import Principal
from kennel.wire.errors import KennelError

_NEXT = re.compile(rf"{ROOT}/p/[A-Za-z0-9_.~%/?=&:+-]*")


def _next(text: str) -> str:
    """The page asked for, or the console's start when it is not one of its own."""
    return text if _NEXT.fullmatch(text) else ROOT


def _page(request: Request, wanted: str, complaint: str = "", status: int = 200) -> Response:
    return HTMLResponse(
        render("login.html", visit=None, wanted=wanted, complaint=complaint, **chrome(request, None)), status
    )


async def show(request: Request) -> Response:
    """The page that asks for a key; somebody who has a session goes on."""
    wanted = _next(request.query_params.get("next", ""))
    return RedirectResponse(wanted, 303) if SESSION in request.scope else _page(request, wanted)


def enter(sessions: Sessions) -> Route:
    """`POST /login`: a key for a session."""

    async def login(request: Request) -> Response:
        form = await read_form(request)
        wanted, token = _next(form.text("next")), form.text("key").strip()
        try:
            if not 0 < len(token) <= MAX_TOKEN or not token.isascii():
                return _page(request, wanted, "This is not a key.", 401)
            who = await services_of(request).keys.authenticate(token)
        except KennelError as failure:
            if failure.code != "UNAUTHORIZED":
                raise
            return _page(request, wanted, "This key is unknown or was revoked.", 401)
        cookie, _ = sessions.open(who.key_id)
        answer = RedirectResponse(wanted, 303)
        answer.set_cookie(
            cookie_name(request), cookie, max_age=int(MAX_AGE_SECONDS), path=ROOT, httponly=True, samesite="strict",
            secure=request.url.scheme == "https",
        )  # fmt: skip
        return answer

    return Route("/login", login, methods=["POST"])


def leave(sessions: Sessions) -> Route:
    """`POST /logout`: the session is over, here and on the server."""

    async def logout(request: Request) -> Response:
        require_token(request.scope[SESSION], await read_form(request))
        name = cookie_name(request)
        sessions.close(request.cookies.get(name, ""))
        answer = RedirectResponse(f"{ROOT}/login", 303)
        answer.delete_cookie(name, path=ROOT, httponly=True, samesite="strict")
        return answer

    return Route("/logout", logout, methods=["POST"])


async def home(request: Request) -> Response:
    """The console's start: the sandboxes of the visitor's project."""
    who: Principal = request.scope[PRINCIPAL]
    return RedirectResponse(f"{ROOT}/p/{home_project(who)}/sandboxes", 303)
