# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns a WebSocket to a server in a sandbox: text and bytes both ways.

Made by `ws_connect`. Invariant: what the server sends is what comes back, one message each; a connection that breaks is
CONNECTION_LOST and never an end.
"""

from __future__ import annotations

from types import TracebackType

from kennel.sdk import websocket_frames as frames
from kennel.sdk._sync.socket import Socket


class WebSocket:
    """An open connection; iterate over it for the server's messages. `close_code` is set once the server has closed."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    @property
    def subprotocol(self) -> str | None:
        """What the server chose among those offered."""
        return self._socket.subprotocol

    @property
    def close_code(self) -> int | None:
        """What the server closed with."""
        return self._socket.close_code

    def receive(self) -> str | bytes | None:
        """The next message, text or bytes; None once the server has closed."""
        got = self._socket.message()
        if got is None:
            return None
        return got.payload.decode("utf-8", "replace") if got.opcode == frames.TEXT else got.payload

    def send(self, message: str | bytes) -> None:
        """Sends one message; waits while the server is slow."""
        if isinstance(message, str):
            self._socket.send_frame(frames.TEXT, message.encode())
        else:
            self._socket.send_frame(frames.BINARY, message)

    def close(self) -> None:
        """Says goodbye; a second time nothing happens."""
        self._socket.close()

    def __iter__(self) -> WebSocket:
        return self

    def __next__(self) -> str | bytes:
        message = self.receive()
        if message is None:
            raise StopIteration
        return message

    def __enter__(self) -> WebSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
