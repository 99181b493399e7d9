"""Owns WebSockets: where the key of one stands, how one is refused, and what its two ends say to each other.

Called by the gate and by the routes that serve one. Invariants: a refusal before the handshake is an HTTP answer in the
contract's shape; a socket that fails later says `error` and closes with 1011; a key never becomes part of a URL.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from kennel.wire.errors import KennelError, error

PROTOCOL = "kennel.v1"
"""The subprotocol that the server names when the client offers any of ours."""
KEY_PROTOCOL = "kennel.key."
"""Before the key, in an offered subprotocol: what a browser can send, and no log of URLs shows."""
NORMAL, FAULT, REFUSED = 1000, 1011, 1008
_encoder = msgspec.json.Encoder()


class Left(Exception):
    """The other end has closed the socket, or is gone."""


def offered_key(scope: Scope) -> str | None:
    """The key among the offered subprotocols, taken out of them."""
    offered: list[str] = scope.get("subprotocols") or []
    found = [word for word in offered if word.startswith(KEY_PROTOCOL)]
    scope["subprotocols"] = [word for word in offered if not word.startswith(KEY_PROTOCOL)]
    return found[0].removeprefix(KEY_PROTOCOL) if len(found) == 1 else None


async def refuse(scope: Scope, send: Send, failure: KennelError) -> None:
    """Answers a handshake with the error, as HTTP where the server can."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": REFUSED, "reason": failure.code})
        return
    headers = [(b"content-type", b"application/json")]
    await send({"type": "websocket.http.response.start", "status": failure.status, "headers": headers})
    body = json.dumps(failure.to_wire(), ensure_ascii=True, default=str).encode()
    await send({"type": "websocket.http.response.body", "body": body})


class Socket:
    """One accepted WebSocket: bytes and JSON objects both ways."""

    def __init__(self, websocket: WebSocket) -> None:
        self._receive: Receive = websocket.receive
        self._send: Send = websocket.send
        self.open = True

    async def receive(self) -> bytes | dict[str, Any]:
        """The next message; Left at the end, VALIDATION_FAILED for text that is no JSON object."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self.open = False
            raise Left
        data: bytes | None = message.get("bytes")
        if data is not None:
            return data
        try:
            value = msgspec.json.decode(message["text"])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise error("VALIDATION_FAILED", "a text message is a JSON object")
        return value

    async def send(self, message: bytes | dict[str, Any]) -> None:
        """Sends bytes as a binary message, an object as JSON text; waits while the other end is slow."""
        told: dict[str, Any] = {"type": "websocket.send"}
        if isinstance(message, bytes):
            told["bytes"] = message
        else:
            told["text"] = _encoder.encode(message).decode()
        try:
            await self._send(told)
        except (OSError, RuntimeError):
            self.open = False
            raise Left from None

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Ends it; harmless when it has ended."""
        if self.open:
            self.open = False
            try:
                await self._send({"type": "websocket.close", "code": code, "reason": reason[:120]})
            except (OSError, RuntimeError):
                return


@asynccontextmanager
async def accepted(websocket: WebSocket) -> AsyncIterator[Socket]:
    """The accepted socket for the length of the block; a KennelError in it is told and closes it."""
    offered = websocket.scope.get("subprotocols") or []
    await websocket.accept(PROTOCOL if PROTOCOL in offered else None)
    socket = Socket(websocket)
    try:
        yield socket
    except Left:
        return
    except KennelError as failure:
        if socket.open:
            try:
                await socket.send({"type": "error", **failure.to_wire()})
            except Left:
                return
        await socket.close(FAULT, failure.code)
    except BaseException:
        await socket.close(FAULT, "INTERNAL_ERROR")
        raise
    else:
        await socket.close()
