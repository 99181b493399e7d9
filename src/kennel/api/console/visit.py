"""Owns one request of a logged-in browser: who it is, in which project, its form, and how its answer is rendered.

Called by every page, which declares its route with `get` or `post`. Invariants: no page runs without a session, a key
still in force and the scope it names; no `post` runs without the session's form token, and none reads anything before.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote

from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from kennel.api.access import check
from kennel.api.console import guests
from kennel.api.console.forms import Form, read_form
from kennel.api.console.navigation import links
from kennel.api.console.rendering import ROOT, render
from kennel.api.console.session import Session
from kennel.api.gate import PRINCIPAL
from kennel.api.services import Services, services_of
from kennel.api.sockets import refuse
from kennel.domain.membership import Guest
from kennel.domain.principal import DEFAULT_PROJECT, Principal
from kennel.wire.errors import KennelError, error

SESSION = "kennel.session"
THEMES = ("light", "dark")


@dataclass(slots=True)
class Visit:
    """What a page is given."""

    request: Request
    services: Services
    session: Session
    who: Principal
    project: str
    form: Form = field(default_factory=Form)

    @property
    def partial(self) -> bool:
        """Whether a script asked for a piece of the page rather than a page."""
        return self.request.headers.get("hx-request") == "true"

    @property
    def guest(self) -> Guest | None:
        """The holder of a join link, who has this room and nothing else."""
        return self.who if isinstance(self.who, Guest) else None

    def may(self, scope: str) -> bool:
        """Whether this visitor's key has a scope here, or its link allows as much."""
        if isinstance(self.who, Guest):
            return guests.may(self.who, scope, self.project)
        return self.who.may(scope, self.project)

    def url(self, *segments: str) -> str:
        """An address below the project; every segment is encoded."""
        return "/".join([f"{ROOT}/p/{quote(self.project, safe='')}", *(quote(one, safe="") for one in segments)])

    def piece(self, template: str, status: int = 200, **context: Any) -> HTMLResponse:
        """A piece of a page."""
        return HTMLResponse(render(template, visit=self, **context), status)

    def page(self, template: str, status: int = 200, **context: Any) -> HTMLResponse:
        """A whole page, with what the visitor is to be told."""
        return HTMLResponse(render(template, visit=self, **chrome(self.request, self), **context), status)

    def go(self, address: str, notice: str | None = None) -> Response:
        """Sends the browser elsewhere after a form, with a sentence to show there."""
        if notice is not None:
            self.session.tell(notice)
        if self.partial:
            return Response(status_code=204, headers={"hx-redirect": address})
        return RedirectResponse(address, 303)


def chrome(request: Request, visit: Visit | None) -> dict[str, Any]:
    """What the frame around every page needs; without a visit it has no navigation."""
    theme = request.cookies.get("kennel-theme", "")
    return {
        "theme": theme if theme in THEMES else "",
        "links": links(visit) if visit is not None else [],
        "notices": visit.session.take_notices() if visit is not None else [],
        "here": request.scope["path"],
    }


Handler: TypeAlias = Callable[[Visit], Awaitable[Response]]
SocketHandler: TypeAlias = Callable[[WebSocket, Principal, str], Awaitable[None]]
Check: TypeAlias = Callable[[Request, str], Awaitable[Principal]]


def start(who: Principal) -> str:
    """The address where a visitor starts."""
    if isinstance(who, Guest):
        return guests.home(who)
    return f"{ROOT}/p/{quote(home_project(who), safe='')}/sandboxes"


def home_project(who: Principal) -> str:
    """Where a key's holder starts."""
    return who.project or DEFAULT_PROJECT


async def _admit(connection: HTTPConnection, scope: str, link: str | None) -> Principal:
    """Whoever may: a key by the scope it has, a join link by what it needs there (None: no link may)."""
    who, project = connection.scope[PRINCIPAL], connection.path_params["project"]
    if isinstance(who, Guest):
        return await guests.admit(connection, who, project, link)
    return await check(connection, scope, project)


async def _visit(request: Request, scope: str, link: str | None) -> Visit:
    project = request.path_params["project"]
    session: Session = request.scope[SESSION]
    who = await _admit(request, scope, link)
    return Visit(request, services_of(request), session, who, project)


def get(path: str, scope: str = "read", link: str | None = None) -> Callable[[Handler], Route]:
    """Declares a page below `/p/{project}` that needs `scope` there, or a join link that allows `link`."""

    def declare(handler: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            return await handler(await _visit(request, scope, link))

        return Route(f"/p/{{project}}{path}", endpoint, methods=["GET"], name=handler.__name__)

    return declare


def post(path: str, scope: str, link: str | None = None) -> Callable[[Handler], Route]:
    """Declares where a form goes; it needs `scope` or `link` as `get` does, and the session's token in `token`."""

    def declare(handler: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            form = await read_form(request)
            require_token(request.scope[SESSION], form)
            visit = await _visit(request, scope, link)
            visit.form = form
            return await handler(visit)

        return Route(f"/p/{{project}}{path}", endpoint, methods=["POST"], name=handler.__name__)

    return declare


TOKEN_HEADER = "x-kennel-form"
"""Where the session's token stands when a body is not a form."""


def put(path: str, scope: str, link: str | None = None) -> Callable[[Handler], Route]:
    """Declares where a script sends bytes; it needs `scope`, and the session's token in TOKEN_HEADER."""

    def declare(handler: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            require_token(request.scope[SESSION], Form([("token", request.headers.get(TOKEN_HEADER, ""))]))
            return await handler(await _visit(request, scope, link))

        return Route(f"/p/{{project}}{path}", endpoint, methods=["PUT"], name=handler.__name__)

    return declare


def socket(path: str, scope: str, link: str | None = None) -> Callable[[SocketHandler], WebSocketRoute]:
    """Declares a WebSocket that needs `scope`; the door has looked at its session and token."""

    def declare(handler: SocketHandler) -> WebSocketRoute:
        async def endpoint(websocket: WebSocket) -> None:
            project = websocket.path_params["project"]
            try:
                who = await _admit(websocket, scope, link)
            except KennelError as failure:
                await refuse(websocket.scope, websocket.send, failure)
                return
            await handler(websocket, who, project)

        return WebSocketRoute(f"/p/{{project}}{path}", endpoint, name=handler.__name__)

    return declare


def same_token(session: Session, shown: str) -> bool:
    """Whether this is the session's form token."""
    return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), session.form_token.encode())


def require_token(session: Session, form: Form) -> None:
    """FORBIDDEN unless the form came from a page of this session."""
    if not same_token(session, form.text("token")):
        raise error(
            "FORBIDDEN", "this form is not of your session", hint="load the page again and repeat it", admitted="no"
        )
