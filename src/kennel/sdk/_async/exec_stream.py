"""Owns a command that is followed from this side: its events over any number of connections, or over a WebSocket.

Called by programs through `box.exec_stream()` and `box.interact()`. Invariants: the iteration ends after `exit` or with
an error, and by nothing else; leaving it early ends the command; a command is started once and never repeated.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from kennel.sdk._async.following import SILENCE
from kennel.sdk._async.reply import AsyncReply
from kennel.sdk._async.socket import AsyncSocket
from kennel.sdk._async.transport import PAUSES, AsyncTransport
from kennel.sdk.failures import may_follow_on
from kennel.sdk.messages import Message, Messages
from kennel.sdk.running import ExecEvent, ExecExit, exec_event
from kennel.wire.errors import KennelError, error, from_wire

STDIN, STDOUT = 0, 1
_EXIT = ("exit", "error")


class AsyncExecStream:
    """An iterator over a command's events; use it in a `with` block, or `close` it."""

    def __init__(self, transport: AsyncTransport, route: str, body: dict[str, Any]) -> None:
        self._transport, self._route, self._body = transport, f"{route}/exec", body
        self._reply: AsyncReply | None = None
        self._parser = Messages()
        self._waiting: list[Message] = []
        self._last: str | None = None
        self._failed: list[KennelError] = []
        self._ended = False
        self.exec_id: str | None = None
        self.exit: ExecExit | None = None

    def __aiter__(self) -> AsyncExecStream:
        return self

    async def __anext__(self) -> ExecEvent:
        while not self._ended:
            while self._waiting:
                message = self._waiting.pop(0)
                self._last = message.id
                event = await self._read(message)
                if event is not None:
                    return event
            await self._more()
        raise StopAsyncIteration

    async def _read(self, message: Message) -> ExecEvent | None:
        try:
            event = exec_event(message)
        except KennelError:
            await self._finish()
            raise
        if event is not None and event.type == "start":
            self.exec_id = event.exec_id
        if event is not None and event.type == "exit":
            self.exit = event.exit
            await self._finish()
        return event

    async def _finish(self) -> None:
        self._ended = True
        await self._let_go()

    async def _let_go(self) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            await reply.close()

    async def open(self) -> AsyncExecStream:
        """Starts it now rather than at the first event; raises what it is refused for."""
        if self.exec_id is None:
            self._reply = await self._transport.open(
                self._route, accept="text/event-stream", query={}, headers={}, silence=SILENCE, method="POST",
                body=self._body,
            )  # fmt: skip
        else:
            query = {"encoding": self._body.get("encoding", "utf8")}
            self._reply = await self._transport.open(
                f"{self._route}/{self.exec_id}", accept="text/event-stream", query=query,
                headers={"Last-Event-ID": self._last or "0"}, silence=SILENCE,
            )  # fmt: skip
        self._parser = Messages()
        return self

    async def _more(self) -> None:
        """Reads on; over a new connection where the command outlives the old one."""
        try:
            if self._reply is None:
                await self.open()
                return
            piece = await self._reply.read()
            if piece is None:
                raise error("CONNECTION_LOST", "the stream ended without the command's end", admitted="yes")
            self._waiting = self._parser.feed(piece)
            self._failed.clear()
        except KennelError as failure:
            await self._let_go()
            await self._pause_after(failure)

    async def _pause_after(self, failure: KennelError) -> None:
        tries = len(self._failed)
        again = self.exec_id is not None and self._body.get("linger") and may_follow_on(failure, True)
        if not again or tries == len(PAUSES):
            self._ended = True
            if failure.code == "COMMAND_NOT_FOUND" and self._failed:
                raise self._failed[0]  # the server that knew it is gone, and the command with it
            raise failure
        self._failed.append(failure)
        await asyncio.sleep(PAUSES[tries])

    async def close(self) -> None:
        """Ends the iteration, and the command if it still runs."""
        running = not self._ended and self.exec_id is not None
        await self._finish()
        if running and self._body.get("linger"):
            await self._transport.call("DELETE", f"{self._route}/{self.exec_id}", type(None), repeat=True)

    async def __aenter__(self) -> AsyncExecStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


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
