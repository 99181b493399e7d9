"""Owns what every console request passes: the session behind its cookie, and the headers of every answer.

Called by console/app.py, inside the API's gate, which has checked Host and Origin. Invariants: without a session whose
key or link is in force nothing but the login page and static files is served, and what is followed ends with it; the
cookie means something here alone, never to the JSON API; every answer carries a policy under which a page runs no
script but the console's own files; a socket is opened by a page of the session alone, which shows its form token.
"""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kennel.api.console.guests import JOIN
from kennel.api.console.leash import Leash
from kennel.api.console.rendering import ROOT, render
from kennel.api.console.session import Session, Sessions, everybody
from kennel.api.console.visit import SESSION, same_token
from kennel.api.gate import OPEN_PRINCIPAL, PRINCIPAL
from kennel.api.services import Services
from kennel.api.sockets import refuse
from kennel.domain.membership import LINK_ID
from kennel.domain.principal import Principal
from kennel.wire.errors import Unauthorized, error

_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


OVER = 4001
"""How a socket is closed whose session is over."""
FORM = "kennel.form."
"""Before the session's token, in an offered subprotocol: pages cannot give a socket headers."""


def _free(scope: Scope) -> bool:
    """Whether a request is served without a session."""
    path: str = scope["path"]
    return path in (f"{ROOT}/login", JOIN) or path.startswith(f"{ROOT}/static/")


def cookie_name(connection: HTTPConnection) -> str:
    """Browsers keep cookies by host, not by port; two installations on one machine must not log each other out."""
    url = connection.url
    return f"kennel-session-{url.port or (443 if url.scheme in ('https', 'wss') else 80)}"


def policy(request: Request) -> str:
    """The content security policy: scripts and styles from the console's own folder, nothing inline.

    Pictures may come from the files of sandboxes too; `files.raw` serves nothing else to a page.
    """
    host = f"{request.url.scheme}://{request.headers.get('host', '')}{ROOT}"
    own = f"{host}/static/"
    return (
        f"default-src 'none'; script-src {own}; style-src {own}; img-src {own} {host}/p/; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


class Door:
    """Finds the session or shows the way to the login page; `open` lets everybody be the same one."""

    def __init__(self, app: ASGIApp, *, services: Services, sessions: Sessions, open_door: bool) -> None:
        self._app, self._services, self._sessions = app, services, sessions
        self._everybody = everybody() if open_door else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._socket(scope, receive, send)
            return
        request = Request(scope)
        head = {**_HEADERS, "content-security-policy": policy(request)}

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in head.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        if not await self._admitted(request):
            await self._way_in(request)(scope, receive, guarded)
        elif request.headers.get("accept") == "text/event-stream":
            await self._follow(request, receive, guarded, {"type": "http.disconnect"})
        else:
            await self._app(scope, receive, guarded)

    async def _follow(self, connection: HTTPConnection, receive: Receive, send: Send, parting: Message) -> bool:
        """Serves what goes on for long, until the session is over; whether it was cut off."""
        leash = Leash(receive, partial(self._holds, connection), parting)
        try:
            await self._app(connection.scope, leash, send)
        finally:
            await leash.close()
        return leash.cut

    async def _holds(self, connection: HTTPConnection) -> bool:
        """Whether the session of this connection goes on; looking is no use of it."""
        if self._everybody is not None:
            return True
        session = await self._sessions.find(connection.cookies.get(cookie_name(connection), ""), used=False)
        try:
            return session is not None and await self._holder(session) is not None
        except Unauthorized:
            return False

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket of a page: same origin, a session, and the session's token among the subprotocols."""
        connection = HTTPConnection(scope)
        secure = "s" if connection.url.scheme == "wss" else ""
        origin = f"http{secure}://{connection.headers.get('host', '')}"
        offered: list[str] = scope.get("subprotocols") or []
        shown = next((word.removeprefix(FORM) for word in offered if word.startswith(FORM)), "")
        scope["subprotocols"] = [word for word in offered if not word.startswith(FORM)]
        if connection.headers.get("origin") != origin:
            await refuse(scope, send, error("ORIGIN_REFUSED", "only pages of the console may open this", admitted="no"))
        elif not await self._admitted(connection) or SESSION not in scope:
            await refuse(scope, send, error("UNAUTHORIZED", "log in first", admitted="no"))
        elif not same_token(scope[SESSION], shown):
            await refuse(scope, send, error("FORBIDDEN", "this socket is not of your session", admitted="no"))
        else:
            await self._watch(connection, receive, send)

    async def _watch(self, connection: HTTPConnection, receive: Receive, send: Send) -> None:
        """A socket, told at its end when it was cut off."""
        open_ = False

        async def noted(message: Message) -> None:
            nonlocal open_
            open_ = message["type"] in ("websocket.accept", "websocket.send")
            await send(message)

        if await self._follow(connection, receive, noted, {"type": "websocket.disconnect", "code": OVER}) and open_:
            await send({"type": "websocket.close", "code": OVER, "reason": "your session is over"})

    async def _admitted(self, request: HTTPConnection) -> bool:
        scope, session = request.scope, self._everybody
        if session is not None:
            scope[SESSION], scope[PRINCIPAL] = session, OPEN_PRINCIPAL
            return True
        cookie = request.cookies.get(cookie_name(request), "")
        session = await self._sessions.find(cookie) if cookie else None
        if session is None:
            return _free(scope)
        return await self._recognised(session, scope, cookie)

    async def _recognised(self, session: Session, scope: Scope, cookie: str) -> bool:
        try:
            scope[PRINCIPAL] = await self._holder(session)
        except Unauthorized:
            await self._sessions.close(cookie)
            return _free(scope)
        scope[SESSION] = session
        return True

    async def _holder(self, session: Session) -> Principal:
        """Who the session's key or link is, as it is now; UNAUTHORIZED."""
        id_ = session.key_id or ""
        if id_.startswith(LINK_ID):
            return await self._services.rooms.links.holder(id_)
        return await self._services.keys.holder(id_)

    @staticmethod
    def _way_in(request: Request) -> Response:
        path = request.scope["path"]
        wanted = path + (f"?{request.url.query}" if request.url.query else "")
        login = f"{ROOT}/login" if request.method != "GET" else f"{ROOT}/login?next={quote(wanted, safe='')}"
        if request.headers.get("hx-request") == "true":
            return Response(status_code=401, headers={"hx-redirect": f"{ROOT}/login"})
        if request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site":
            # A strict cookie is not sent when a link elsewhere led here; coming from this page, it is.
            return HTMLResponse(render("again.html", address=wanted))
        return RedirectResponse(login, 303)
