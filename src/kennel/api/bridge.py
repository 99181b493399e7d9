"""Owns joining a caller's WebSocket with one of a server inside a sandbox.

Called by the proxy route. Invariants: the server's handshake comes first, so that its refusal and its choice of a
subprotocol are the caller's; messages are passed whole and in order, at the speed of the slower side; closes are passed
on, with codes that may not be sent told as 1000.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.websockets import WebSocket
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from kennel.api.forwarding import outward
from kennel.api.sockets import PROTOCOL
from kennel.ports.processes import Wire
from kennel.wire.errors import error

MAX_MESSAGE = 4 * 1024 * 1024
_SILENT = (1005, 1006, 1015)
_OWN = frozenset(("upgrade", "connection", "sec-websocket-key", "sec-websocket-version", "sec-websocket-protocol"))


class Bridge:
    """One pair of sockets."""

    def __init__(self, websocket: WebSocket, wire: Wire, target: str, prefix: str) -> None:
        self._websocket = websocket
        self._wire = wire
        offered = [Subprotocol(word) for word in websocket.scope.get("subprotocols") or [] if word != PROTOCOL]
        path, _, query = target.partition("?")
        uri = WebSocketURI(False, "localhost", 80, path, query)
        self._far = ClientProtocol(uri, subprotocols=offered or None, max_size=MAX_MESSAGE)
        self._prefix = prefix
        self._pieces: list[bytes] = []
        self._text = False

    async def handshake(self) -> None:
        """Greets the server; SERVICE_NOT_RESPONDING when it does not want to talk WebSocket."""
        request = self._far.connect()
        request.headers.pop("Host", None)
        for name, value in outward(self._websocket.scope, self._prefix):
            word = name.decode("latin-1")
            if word.lower() not in _OWN and not word.lower().startswith("sec-websocket"):
                request.headers[word] = value.decode("latin-1")
        self._far.send_request(request)
        await self._flush()
        while self._far.state is State.CONNECTING and self._far.handshake_exc is None:
            await self._hear()
        fault = self._far.handshake_exc
        if fault is not None or self._far.state is State.CONNECTING:
            status = fault.response.status_code if isinstance(fault, InvalidStatus) else None
            what = str(fault) if isinstance(fault, InvalidHandshake) else "it closed"
            raise error(
                "SERVICE_NOT_RESPONDING",
                f"the server did not open a WebSocket: {what[:200]}",
                details={"status": status},
            )

    async def run(self) -> None:
        """Carries messages until either side closes; the caller's socket was not accepted yet."""
        await self._websocket.accept(self._far.subprotocol)
        inward = asyncio.create_task(self._inward())
        outward_ = asyncio.create_task(self._outward())
        try:
            done, _ = await asyncio.wait({inward, outward_}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except (OSError, RuntimeError):
            return
        finally:
            for task in (inward, outward_):
                task.cancel()
            await asyncio.gather(inward, outward_, return_exceptions=True)

    async def _hear(self) -> None:
        data = await self._wire.read()
        if data:
            self._far.receive_data(data)
        else:
            self._far.receive_eof()
        await self._flush()

    async def _flush(self) -> None:
        data = b"".join(self._far.data_to_send())
        if data:
            await self._wire.write(data)

    async def _inward(self) -> None:
        """What the server sends, until it closes."""
        while True:
            for event in self._far.events_received():
                if isinstance(event, Frame):
                    await self._take(event)
            if self._far.state is not State.OPEN:
                break
            await self._hear()
        code = self._far.close_code if self._far.close_rcvd is not None else 1011
        reason = self._far.close_reason or ""
        await self._websocket.close(1000 if code is None or code in _SILENT else code, reason[:120])

    async def _take(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._text = frame.opcode is Opcode.TEXT
        elif frame.opcode is not Opcode.CONT:
            return
        self._pieces.append(bytes(frame.data))
        if frame.fin:
            data, self._pieces = b"".join(self._pieces), []
            if self._text:
                await self._websocket.send_text(data.decode("utf-8", "replace"))
            else:
                await self._websocket.send_bytes(data)

    async def _outward(self) -> None:
        """What the caller sends, until it closes."""
        while True:
            message: dict[str, Any] = dict(await self._websocket.receive())
            if self._far.state is not State.OPEN:
                return
            if message["type"] == "websocket.disconnect":
                code = message.get("code") or 1000
                self._far.send_close(1000 if code in _SILENT or code == 1012 else code, message.get("reason") or "")
                await self._flush()
                return
            if message.get("bytes") is not None:
                self._far.send_binary(message["bytes"])
            else:
                self._far.send_text(message["text"].encode())
            await self._flush()
