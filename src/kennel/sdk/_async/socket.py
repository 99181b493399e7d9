"""Owns one WebSocket of this half: messages both ways over a connection of the pool.

Called by interactions and terminals. Invariants: one reader at a time, writers take turns; a connection that breaks is
CONNECTION_LOST and never an end; its connection is given back exactly once.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import httpcore2
import msgspec

from kennel.sdk import websocket_frames as frames
from kennel.sdk.answers import encoded
from kennel.sdk.failures import BROKEN, hang_up, lost
from kennel.sdk.turns import AsyncTurn
from kennel.wire.errors import error

_PIECE = 256 * 1024


class AsyncSocket:
    """An open WebSocket."""

    def __init__(
        self, exchange: AbstractAsyncContextManager[httpcore2.Response], response: httpcore2.Response, url: str
    ) -> None:
        self._exchange, self._response, self._url = exchange, response, url
        self._stream = response.extensions["network_stream"]
        self._frames = frames.Frames()
        self._waiting: list[frames.Received] = []
        self._turn = AsyncTurn()
        self._open = True
        self.close_code: int | None = None
        chosen = (value for name, value in response.headers if name.lower() == b"sec-websocket-protocol")
        self.subprotocol = next((value.decode("latin-1") for value in chosen), None)

    async def receive(self) -> bytes | dict[str, Any] | None:
        """The next message, text as its JSON; None once the server has closed."""
        got = await self.message()
        if got is None:
            return None
        return got.payload if got.opcode == frames.BINARY else _object(got.payload)

    async def message(self) -> frames.Received | None:
        """The next message as it came; None once the server has closed."""
        while True:
            while self._waiting:
                got = self._waiting.pop(0)
                if got.opcode == frames.PING:
                    await self._write(frames.frame(frames.PONG, got.payload))
                elif got.opcode == frames.CLOSE:
                    self.close_code = got.close_code
                    return None
                elif got.opcode in (frames.BINARY, frames.TEXT):
                    return got
            try:
                data = await self._stream.read(_PIECE)
            except BROKEN as failure:
                raise lost(failure, self._url) from failure
            if not data:
                raise error("CONNECTION_LOST", f"the connection to {self._url} was lost", admitted="unknown")
            self._waiting = self._frames.feed(data)

    async def send(self, message: bytes | dict[str, Any]) -> None:
        """Sends bytes as a binary message, an object as JSON text; waits while the server is slow."""
        if isinstance(message, bytes):
            await self.send_frame(frames.BINARY, message)
        else:
            await self.send_frame(frames.TEXT, encoded(message))

    async def send_frame(self, opcode: int, payload: bytes) -> None:
        """Sends one message of this kind; waits while the server is slow."""
        await self._write(frames.frame(opcode, payload))

    async def _write(self, data: bytes) -> None:
        try:
            async with self._turn:
                await self._stream.write(data)
        except BROKEN as failure:
            raise lost(failure, self._url) from failure

    def hang_up(self) -> None:
        """Ends the connection under its reader, from any thread or task."""
        hang_up(self._response)

    async def close(self) -> None:
        """Says goodbye and gives the connection back."""
        if self._open:
            self._open = False
            try:
                # A writer that waits for a slow server holds the turn: the goodbye is then left out.
                if not self._turn.locked():
                    await self._stream.write(frames.frame(frames.CLOSE, frames.close_payload(1000)))
            except BROKEN:
                self.close_code = self.close_code or 1006
            await self._exchange.__aexit__(None, None, None)


def _object(payload: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as failure:
        raise error("PROTOCOL_VIOLATION", f"the server's message is no JSON object: {failure}") from failure
