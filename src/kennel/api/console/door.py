"""Owns what every console request passes: the session behind its cookie, and the headers of every answer.

Called by console/app.py, inside the API's gate, which has checked Host and Origin. Invariants: without a session whose
key is in force nothing but the login page and static files is served; the cookie means something here alone, never to
the JSON API; every answer carries a policy under which a page runs no script but the console's own files.
"""

from __future__ import annotations

from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kennel.api.console.rendering import ROOT, render
from kennel.api.console.session import Session, Sessions
from kennel.api.console.visit import SESSION
from kennel.api.gate import OPEN_PRINCIPAL, PRINCIPAL
from kennel.api.services import Keys
from kennel.wire.errors import KennelError

_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


def _free(scope: Scope) -> bool:
    """Whether a request is served without a session."""
    path: str = scope["path"]
    return path == f"{ROOT}/login" or path.startswith(f"{ROOT}/static/")


def cookie_name(request: Request) -> str:
    """Browsers keep cookies by host, not by port; two installations on one machine must not log each other out."""
    return f"kennel-session-{request.url.port or (443 if request.url.scheme == 'https' else 80)}"


def policy(request: Request) -> str:
    """The content security policy: scripts and styles from the console's own folder, nothing inline."""
    own = f"{request.url.scheme}://{request.headers.get('host', '')}{ROOT}/static/"
    return (
        f"default-src 'none'; script-src {own}; style-src {own}; img-src {own}; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


class Door:
    """Finds the session or shows the way to the login page; `open` lets everybody be the same one."""

    def __init__(self, app: ASGIApp, *, keys: Keys, sessions: Sessions, open_door: bool) -> None:
        self._app, self._keys, self._sessions = app, keys, sessions
        self._everybody = sessions.open(None)[1] if open_door else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "NOT_FOUND"})
            return
        request = Request(scope)
        head = {**_HEADERS, "content-security-policy": policy(request)}

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in head.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        answer = None if await self._admitted(request) else self._way_in(request)
        await (self._app if answer is None else answer)(scope, receive, guarded)

    async def _admitted(self, request: Request) -> bool:
        scope, session = request.scope, self._everybody
        if session is not None:
            scope[SESSION], scope[PRINCIPAL] = session, OPEN_PRINCIPAL
            return True
        cookie = request.cookies.get(cookie_name(request), "")
        session = self._sessions.find(cookie) if cookie else None
        if session is None:
            return _free(scope)
        return await self._recognised(session, scope, cookie)

    async def _recognised(self, session: Session, scope: Scope, cookie: str) -> bool:
        try:
            scope[PRINCIPAL] = await self._keys.holder(session.key_id or "")
        except KennelError as failure:
            if failure.code != "UNAUTHORIZED":
                raise
            self._sessions.close(cookie)
            return _free(scope)
        scope[SESSION] = session
        return True

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
