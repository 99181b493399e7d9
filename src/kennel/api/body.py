"""Owns request bodies: how large, how long they may take, and how strictly their JSON is read.

Called by the server after the gate and before any route. Invariants: a body is bounded while it is read, chunked or
not; it is complete before a route runs, so a later message on the connection can only be its end.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kennel.api.failures import failure_response
from kennel.wire.errors import KennelError, error

MAX_BODY = 1024 * 1024
MAX_STDIN = 16 * 1024 * 1024
MAX_EXEC_BODY = 24 * 1024 * 1024
"""16 MiB of stdin in base64, the command and the environment."""
PATIENCE = 30.0
"""Seconds without a byte before an unfinished body is given up."""

MAX_EVENTS_BODY = 5 * 1024 * 1024
"""A full batch of events and the JSON around it."""
_STREAM = re.compile(r"/v1/projects/[^/]+/streams/.*")
_STREAMED = re.compile(r"/v1/projects/[^/]+/sandboxes/[^/]+/(?:files|archive)/[\s\S]*")
"""PUTs that take a body of any length as it comes."""
_UPLOADED = re.compile(r"/console/p/[^/]+/sandboxes/[^/]+/upload")
"""The same, from a page of the console."""
_IMPORTED = re.compile(r"/v1/projects/[^/]+/sandboxes/import")
"""The POST of a whole tree."""
_EXEC = re.compile(r"/v1/projects/[^/]+/sandboxes/[^/]+/exec")
_PROXIED = re.compile(r"/v1/projects/[^/]+/sandboxes/[^/]+/proxy/[^/]+(?:/[\s\S]*)?")
"""Requests for a server in a sandbox, whose bodies are its own affair."""


class BodyLimit:
    """Reads the whole body, at most `max_body` bytes (more for exec and events), then runs the route."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_body: int = MAX_BODY,
        max_exec_body: int = MAX_EXEC_BODY,
        max_events_body: int = MAX_EVENTS_BODY,
        patience: float = PATIENCE,
    ) -> None:
        self._app = app
        self._max_body = max_body
        self._max_exec_body = max_exec_body
        self._max_events_body = max_events_body
        self._patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        if _as_it_comes(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
            return
        limit = self._limit(scope["path"])
        try:
            body = await self._read(scope, receive, limit)
        except KennelError as failure:
            # The rest of the body was not read, so this connection cannot carry another request.
            await failure_response(failure, {"connection": "close"})(scope, receive, send)
            return
        if body is None:
            return
        message: Message | None = {"type": "http.request", "body": body, "more_body": False}

        async def replay() -> Message:
            nonlocal message
            if message is None:
                return await receive()
            first, message = message, None
            return first

        await self._app(scope, replay, send)

    def _limit(self, path: str) -> int:
        if _EXEC.fullmatch(path):
            return self._max_exec_body
        return self._max_events_body if _STREAM.fullmatch(path) else self._max_body

    async def _read(self, scope: Scope, receive: Receive, limit: int) -> bytes | None:
        """The body; None when the caller left; BODY_TOO_LARGE or WAIT_TIMEOUT."""
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > limit:
                raise _too_large(limit)
        pieces: list[bytes] = []
        size = 0
        while True:
            try:
                async with asyncio.timeout(self._patience):
                    message = await receive()
            except TimeoutError:
                raise error("WAIT_TIMEOUT", "the request's body did not arrive", admitted="no") from None
            if message["type"] == "http.disconnect":
                return None
            piece = message.get("body", b"")
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            pieces.append(piece)
            if not message.get("more_body", False):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _as_it_comes(method: str, path: str) -> bool:
    """Whether the route reads the body itself."""
    if method == "PUT" and (_STREAMED.fullmatch(path) or _UPLOADED.fullmatch(path)):
        return True
    return bool(_PROXIED.fullmatch(path) or (method == "POST" and _IMPORTED.fullmatch(path)))


def _too_large(limit: int) -> KennelError:
    return error("BODY_TOO_LARGE", f"a body here has at most {limit} bytes", details={"limit": limit}, admitted="no")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object names the same field twice")
    return found


def read_json(body: bytes) -> Any:
    """The value of a JSON text; ValueError for anything RFC 8259 refuses, repeated names, or absurd depth."""
    try:
        # msgspec refuses what json lets pass: NaN, bytes that are not UTF-8, half surrogates.
        value = msgspec.json.decode(body)
        json.loads(body, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


class StrictRequest(Request):
    """A request whose JSON is read strictly."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            try:
                self._json = read_json(await self.body())
            except ValueError as fault:
                raise json.JSONDecodeError(str(fault)[:200], "", 0) from None
        return self._json


class StrictRoute(APIRoute):
    """A route whose body is read by StrictRequest."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return strict
