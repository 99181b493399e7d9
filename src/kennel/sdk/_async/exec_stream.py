"""Owns a command that is followed from this side: its events over any number of connections, or over a WebSocket.

Called by programs through `box.exec_stream()` and `box.interact()`. Invariants: the iteration ends after `exit` or with
an error, and by nothing else; leaving it early ends the command.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from kennel.sdk._async.following import SILENCE
from kennel.sdk._async.returning import AsyncReturning
from kennel.sdk._async.socket import AsyncSocket
from kennel.sdk._async.transport import AsyncTransport
from kennel.sdk.messages import Message
from kennel.sdk.running import ExecEvent, ExecExit, exec_event
from kennel.wire.errors import error, from_wire

STDIN, STDOUT = 0, 1
_EXIT = ("exit", "error")


class AsyncExecStream(AsyncReturning[ExecEvent]):
    """An iterator over a command's events; use it in a `with` block, or `close` it."""

    def __init__(self, transport: AsyncTransport, route: str, body: dict[str, Any]) -> None:
        super().__init__(transport, f"{route}/exec", body, SILENCE)
        self.exit: ExecExit | None = None

    @property
    def exec_id(self) -> str | None:
        """Its id, once it runs."""
        return self._name

    def _event(self, message: Message) -> ExecEvent | None:
        event = exec_event(message)
        if event is not None and event.type == "start":
            self._name = event.exec_id
        return event

    def _over(self, event: ExecEvent) -> bool:
        self.exit = event.exit
        return event.type == "exit"

    def _query(self) -> dict[str, str]:
        return {"encoding": self._body.get("encoding", "utf8")}


class AsyncInteraction:
    """A command with live input: iterate its events, write to it meanwhile; use it in a `with` block."""

    def __init__(self, socket: AsyncSocket) -> None:
        self._socket = socket
        self._sequence = 0
        self._ended = False
        self.exec_id: str | None = None
        self.exit: ExecExit | None = None

    def __aiter__(self) -> AsyncInteraction:
        return self

    async def __anext__(self) -> ExecEvent:
        if self._ended:
            raise StopAsyncIteration
        message = await self._socket.receive()
        self._sequence += 1
        if message is None:
            self._ended = True
            raise error("CONNECTION_LOST", "the server closed the socket before the command's end", admitted="unknown")
        if isinstance(message, bytes):
            return ExecEvent("stdout" if message[0] == STDOUT else "stderr", self._sequence, message[1:])
        return self._told(message)

    def _told(self, message: dict[str, Any]) -> ExecEvent:
        kind = message.get("type")
        self._ended = kind in _EXIT
        if kind == "start":
            self.exec_id = message.get("execId")
            return ExecEvent("start", self._sequence, exec_id=self.exec_id)
        if kind == "exit":
            self.exit = ExecExit(
                exit_code=int(message.get("exitCode", -1)),
                success=message.get("exitCode") == 0,
                signal=message.get("signal"),
                timed_out=message.get("timedOut") is True,
                oom_killed=message.get("oomKilled") is True,
                duration_ms=float(message.get("durationMs", 0)),
                stdout_bytes=int(message.get("stdoutBytes", 0)),
                stderr_bytes=int(message.get("stderrBytes", 0)),
            )
            return ExecEvent("exit", self._sequence, exit=self.exit)
        if kind == "truncated":
            return ExecEvent("truncated", self._sequence)
        raise from_wire(500, message)

    async def write(self, data: bytes) -> None:
        """Bytes for its standard input; waits while it does not read them."""
        await self._socket.send(bytes((STDIN,)) + data)

    async def close_stdin(self) -> None:
        """It sees the end of its input."""
        await self._socket.send({"type": "eof"})

    async def signal(self, signal: str | int) -> None:
        """Signals every process of it."""
        await self._socket.send({"type": "signal", "signal": signal})

    def hang_up(self) -> None:
        """Ends the connection, and so the command, from any thread or task."""
        self._socket.hang_up()

    async def close(self) -> None:
        """Ends the command if it still runs."""
        self._ended = True
        await self._socket.close()

    async def __aenter__(self) -> AsyncInteraction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
