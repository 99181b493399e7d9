"""Owns who gets in: the Host and Origin checks, and the key of every request but `GET /health` and the console's.

Called by the server before any route is looked up, so that without a key nothing shows which routes exist. Invariants:
a page of another origin, also one behind a rebound name, never reaches a route; a request without a valid key neither,
except below `/console`, where a session takes the key's place (api/console/door.py) and means nothing elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from kennel.api.failures import failure_response
from kennel.api.services import ApiSettings, Keys
from kennel.api.sockets import offered_key, refuse
from kennel.domain.membership import PREFIX as LINK_PREFIX
from kennel.domain.principal import Principal
from kennel.wire.errors import KennelError, error

PRINCIPAL = "kennel.principal"
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
OPEN_PRINCIPAL = Principal("open", None, frozenset({"admin"}))
"""Who everybody is when keys are turned off."""
MAX_TOKEN = 512
LINK_HEADER = b"x-kennel-room-link"
"""Where a join link's token may stand instead of `Authorization`."""

Links = Callable[[Scope, str], Awaitable[Principal]]
"""Lets the holder of a join link in (api/room_access.py)."""
CONSOLE = "/console"

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_](?:[a-z0-9._-]{0,251}[a-z0-9_])?)\.?(?::([0-9]{1,5}))?")


def _header(scope: Scope, name: bytes) -> str | None:
    """The only value of a header, None without one; a repeated header counts as an empty, so refused, value."""
    found = [value for key, value in scope["headers"] if key == name]
    if not found:
        return None
    return found[0].decode("latin-1").strip() if len(found) == 1 else ""


def _keyless(scope: Scope) -> bool:
    """Whether a request needs no key here: the probe, the console, and a browser that is to be led to the console."""
    path = scope["path"]
    if path == CONSOLE or path.startswith(f"{CONSOLE}/"):
        return True
    if scope["type"] != "http":
        return False
    if path == "/":
        return scope["method"] == "GET" and "text/html" in (_header(scope, b"accept") or "")
    return path == "/health" and scope["method"] in ("GET", "HEAD")


class Gate:
    """Refuses what must not come in and puts the caller's principal in the scope."""

    def __init__(self, app: ASGIApp, keys: Keys, settings: ApiSettings, links: Links | None = None) -> None:
        self._app = app
        self._keys = keys
        self._links = links
        self._open = settings.open
        self._extra = frozenset(name.lower() for name in settings.allowed_hosts)
        self._hosts = LOOPBACK_HOSTS | self._extra

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        try:
            self._check_origin(scope, self._check_host(scope))
            if not _keyless(scope):
                scope[PRINCIPAL] = OPEN_PRINCIPAL if self._open else await self._authenticate(scope)
        except KennelError as failure:
            if scope["type"] == "websocket":
                await refuse(scope, send, failure)
            else:
                await failure_response(failure)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check_host(self, scope: Scope) -> str:
        """The Host header, lower case; HOST_REFUSED unless it names this installation."""
        host = (_header(scope, b"host") or "").lower()
        match = _AUTHORITY.fullmatch(host)
        if match is None or match[1] not in self._hosts:
            raise error("HOST_REFUSED", "this host name is not served here")
        return host

    def _check_origin(self, scope: Scope, host: str) -> None:
        """Lets pass: no Origin (not a browser's script), the same origin, an origin on a host added by setting."""
        origin = _header(scope, b"origin")
        if origin is None:
            return
        scheme, _, authority = origin.lower().partition("://")
        match = _AUTHORITY.fullmatch(authority)
        known = match is not None and (authority == host or match[1] in self._extra)
        if scheme not in ("http", "https") or not known:
            raise error("ORIGIN_REFUSED", "pages of this origin may not call here")

    async def _authenticate(self, scope: Scope) -> Principal:
        value = _header(scope, b"authorization")
        if value is None and (link := _header(scope, LINK_HEADER)):
            value = f"Bearer {link}"
        if scope["type"] == "websocket" and (offered := offered_key(scope)) and value is None:
            value = f"Bearer {offered}"
        scheme, _, token = (value or "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN or not token.isascii():
            raise error("UNAUTHORIZED", "a key is needed")
        if self._links is not None and token.startswith(LINK_PREFIX):
            return await self._links(scope, token)
        return await self._keys.authenticate(token)
