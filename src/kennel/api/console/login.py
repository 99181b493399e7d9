"""Owns coming and going: the login page, which takes a key or a join link once and gives a session; logging out.

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
from kennel.api.console.session import Sessions
from kennel.api.console.visit import SESSION, chrome, require_token, start
from kennel.api.gate import MAX_TOKEN, PRINCIPAL
from kennel.api.services import services_of
from kennel.domain.console_session import MAX_AGE_SECONDS
from kennel.domain.membership import PREFIX as LINK_PREFIX
from kennel.domain.membership import Guest
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


async def invited(request: Request) -> Response:
    """The page of a join link: its token stands behind `#`, which only the browser sees; a script hands it over."""
    return _ask(request, known=SESSION in request.scope)


def _ask(request: Request, *, known: bool, token: str = "") -> Response:
    """Whoever is somebody here already is asked first: a link that was sent to them must not make them another."""
    return HTMLResponse(render("join.html", visit=None, known=known, token=token, **chrome(request, None)))


async def _holder(request: Request, token: str) -> Principal:
    services = services_of(request)
    if token.startswith(LINK_PREFIX):
        return await services.rooms.links.authenticate(token)
    return await services.keys.authenticate(token)


def enter(sessions: Sessions) -> Route:
    """`POST /login`: a key, or a join link's token, for a session."""

    async def login(request: Request) -> Response:
        form = await read_form(request)
        wanted, token = _next(form.text("next")), form.text("key").strip()
        try:
            if not 0 < len(token) <= MAX_TOKEN or not token.isascii():
                return _page(request, wanted, "This is not a key.", 401)
            who = await _holder(request, token)
        except KennelError as failure:
            if failure.code != "UNAUTHORIZED":
                raise
            return _page(request, wanted, "This key or link is unknown, was revoked or has run out.", 401)
        # A page that another site led to was sent without the strict cookie; this form is sent with it.
        if isinstance(who, Guest) and SESSION in request.scope and not form.flag("anyway"):
            return _ask(request, known=True, token=token)
        cookie, _ = await sessions.open(who)
        answer = RedirectResponse(start(who) if isinstance(who, Guest) else wanted, 303)
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
        await sessions.close(request.cookies.get(name, ""), request.scope[PRINCIPAL])
        answer = RedirectResponse(f"{ROOT}/login", 303)
        answer.delete_cookie(name, path=ROOT, httponly=True, samesite="strict")
        return answer

    return Route("/logout", logout, methods=["POST"])


async def home(request: Request) -> Response:
    """The console's start: the sandboxes of the visitor's project, or the room of a join link."""
    return RedirectResponse(start(request.scope[PRINCIPAL]), 303)
