# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns an attachment to a terminal in a sandbox: its bytes, keys, size, and what it is told beside them.

Called by programs through `box.terminal()` and by `kennel shell`. Invariants: the terminal goes on when this is closed;
`cursor` is the position from which another attachment goes on without losing a byte.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from kennel.sdk._sync.socket import Socket
from kennel.sdk.running import ProcessExit
from kennel.wire.errors import from_wire


class Terminal:
    """An iterator over a terminal's output in bytes; ends when its program has, or another side closed it."""

    def __init__(self, socket: Socket, since: int) -> None:
        self._socket = socket
        self.cursor = since
        self.id: str | None = None
        self.runtime: str | None = None
        self.role = "drive"
        self.size: tuple[int, int] | None = None
        self.exit: ProcessExit | None = None
        self.missed = 0

    def __iter__(self) -> Terminal:
        return self

    def __next__(self) -> bytes:
        while True:
            message = self._socket.receive()
            if message is None:
                raise StopIteration
            if isinstance(message, bytes):
                self.cursor += len(message)
                return message
            self._told(message)

    def _told(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == "ready":
            self.id, self.runtime = message.get("terminalId"), message.get("runtime")
            self.role = message.get("role", self.role)
            self.cursor = message.get("cursor", self.cursor)
        elif kind == "role":
            self.role = message.get("role", self.role)
        elif kind == "resize":
            self.size = int(message.get("cols", 80)), int(message.get("rows", 24))
        elif kind == "truncated":
            self.missed += int(message.get("bytes", 0))
            self.cursor += int(message.get("bytes", 0))
        elif kind == "exit":
            self.exit = ProcessExit(code=int(message.get("code", 0)), signal=message.get("signal"))
        elif kind == "error":
            raise from_wire(500, message)

    def write(self, data: bytes) -> None:
        """Keys; they go nowhere while another attachment drives."""
        self._socket.send(data)

    def resize(self, cols: int, rows: int) -> None:
        """Its size, from now on."""
        self._socket.send({"type": "resize", "cols": cols, "rows": rows})

    def hang_up(self) -> None:
        """Ends the connection under whoever iterates, from any thread or task."""
        self._socket.hang_up()

    def close(self) -> None:
        """Looks no more; the terminal goes on."""
        self._socket.close()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
