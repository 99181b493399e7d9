"""Owns how anything that goes wrong becomes JSON: typed errors, validation, unknown routes, and bugs.

Called by app.py, which installs it. Invariant: every answer that is not 2xx has the shape of the public contract, and
none carries a stack trace or the text of an unexpected exception.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kennel.wire.errors import KennelError, error

logger = logging.getLogger("kennel.api")

MAX_FIELDS = 32
MAX_FIELD_NAME = 128


def failure_response(failure: KennelError, headers: Mapping[str, str] | None = None) -> Response:
    """The error as the wire shows it."""
    body = json.dumps(failure.to_wire(), ensure_ascii=True, default=str).encode()
    response = Response(body, failure.status, headers, media_type="application/json")
    if failure.status == 401:
        response.headers["www-authenticate"] = "Bearer"
    if failure.retry_after_ms is not None:
        response.headers["retry-after"] = str(-(-failure.retry_after_ms // 1000))
    return response


def invalid(details: Mapping[str, list[str]]) -> KennelError:
    """The refusal of a request's words: messages by field, `body` for the whole."""
    return error("VALIDATION_FAILED", "invalid request", details=dict(details))


def field_messages(errors: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Pydantic's errors as messages by dotted field; bounded, since an attacker names the fields."""
    found: dict[str, list[str]] = {}
    for one in errors:
        loc = list(one["loc"])
        if loc and loc[0] in ("body", "path", "query", "header"):
            whole, loc = loc[0], loc[1:]
        else:
            whole = "body"
        if one["type"] == "json_invalid":
            loc, message = [], f"not JSON: {one['ctx']['error']}"
        elif one["type"] == "model_attributes_type":
            message = "must be a JSON object, sent as application/json"
        else:
            message = one["msg"].removeprefix("Value error, ")
        name = ".".join(str(part) for part in loc if part != "[key]")[:MAX_FIELD_NAME] or whole
        if name not in found and len(found) >= MAX_FIELDS:
            break
        if len(messages := found.setdefault(name, [])) < 4:
            messages.append(message)
    return found


def _allowed(app: FastAPI, scope: Scope) -> list[str]:
    """Every method that some route has at this path."""
    methods: set[str] = set()
    for route in app.state.known_routes:
        match, _ = route.matches(scope)
        if match is not Match.NONE:
            methods |= route.methods or set()
    return sorted(methods)


async def _typed(_: Request, failure: Exception) -> Response:
    assert isinstance(failure, KennelError)
    return failure_response(failure)


async def _invalid(_: Request, failure: Exception) -> Response:
    assert isinstance(failure, RequestValidationError)
    return failure_response(invalid(field_messages(failure.errors())))


def _is_socket(app: FastAPI, scope: Scope) -> bool:
    """Whether a plain GET stands where a WebSocket is served."""
    if scope["method"] != "GET":
        return False
    asked = {**scope, "type": "websocket"}
    return any(route.matches(asked)[0] is Match.FULL for route in app.state.known_sockets)


_UPGRADE = {"connection": "Upgrade", "upgrade": "websocket"}


async def _http(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, HTTPException)
    if failure.status_code in (404, 405) and _is_socket(request.app, request.scope):
        return failure_response(error("UPGRADE_REQUIRED", "this address is for a WebSocket"), _UPGRADE)
    if failure.status_code == 405:
        allowed = _allowed(request.app, request.scope)
        return failure_response(
            error("METHOD_NOT_ALLOWED", "this method is not allowed here", details={"allow": allowed}),
            {"allow": ", ".join(allowed)},
        )
    if failure.status_code == 404:
        return failure_response(error("NOT_FOUND", "no such route"))
    return failure_response(invalid({"body": ["could not be read"]}))


def install_handlers(app: FastAPI) -> None:
    """Makes the application answer every exception that a route raises in the contract's shape."""
    app.add_exception_handler(KennelError, _typed)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)


class CatchAll:
    """The outermost layer: what nobody handled becomes INTERNAL_ERROR with a request id that the log shows too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except KennelError as failure:
            if started:
                raise
            await failure_response(failure)(scope, receive, send)
        except Exception:
            request_id = uuid.uuid4().hex
            logger.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"][:200])
            if started:
                raise  # half an answer cannot be taken back; the server cuts the connection
            bug = error("INTERNAL_ERROR", "internal error", details={"requestId": request_id})
            await failure_response(bug)(scope, receive, send)
