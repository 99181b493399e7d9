"""Owns iterating over what a server keeps sending: messages over any number of connections, lines over one.

Called by programs through `events()`, `updates()` and `export()`. Invariant: nothing is delivered twice or left out
over a reconnection; leaving the iteration by `close` or a `with` block gives the connection back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from kennel.sdk._async.reply import AsyncReply
from kennel.sdk._async.transport import PAUSES, AsyncTransport, Headers
from kennel.sdk.failures import may_follow_on
from kennel.sdk.messages import Lines, Message, Messages
from kennel.wire.errors import KennelError, error

T = TypeVar("T")

SILENCE = 45.0
"""Seconds without a byte after which a connection counts as lost: three of the server's heartbeats."""


class AsyncFollowing(Generic[T]):
    """An iterator over a server's messages, each as `decode` reads it; what that makes None is passed over.

    A lost connection is made again, for about six seconds, from the last message's id on. It ends after a value that is
    the `last`.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        route: str,
        query: dict[str, str],
        decode: Callable[[Message], T | None],
        *,
        resume: bool,
        last: Callable[[T], bool] | None = None,
    ) -> None:
        self._transport, self._route, self._query, self._decode = transport, route, query, decode
        self._resume = resume
        self._is_last = last
        self._reply: AsyncReply | None = None
        self._parser = Messages()
        self._waiting: list[Message] = []
        self._last: str | None = None
        self._failed: list[KennelError] = []
        self._reached = False
        self._ended = False

    def __aiter__(self) -> AsyncFollowing[T]:
        return self

    async def __anext__(self) -> T:
        while not self._ended:
            while self._waiting:
                message = self._waiting.pop(0)
                self._last = message.id
                value = self._decode(message)
                if value is not None:
                    self._failed.clear()
                    if self._is_last is not None and self._is_last(value):
                        await self.close()
                    return value
            await self._more()
        await self.close()
        raise StopAsyncIteration

    async def open(self) -> AsyncFollowing[T]:
        """Connects now rather than at the first message; raises what the server refuses it for."""
        headers: Headers = {"Last-Event-ID": self._last} if self._resume and self._last is not None else {}
        reply = await self._transport.open(
            self._route, accept="text/event-stream", query=self._query, headers=headers, silence=SILENCE
        )
        self._reply, self._parser, self._reached = reply, Messages(), True
        if self._ended:
            await self.close()
        return self

    def interrupt(self) -> None:
        """Ends the iteration from another thread or task: its next step is its last."""
        self._ended = True
        if self._reply is not None:
            self._reply.hang_up()

    async def close(self) -> None:
        """Ends the iteration and gives the connection back."""
        self._ended = True
        await self._let_go()

    async def _let_go(self) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            await reply.close()

    async def _more(self) -> None:
        """Reads on, over a new connection when there is none."""
        try:
            if self._reply is None:
                await self.open()
                return
            piece = await self._reply.read()
            if piece is None:
                raise error("CONNECTION_LOST", "the server ended the stream", admitted="unknown")
            self._waiting = self._parser.feed(piece)
            if not self._waiting:
                self._failed.clear()  # a heartbeat: the connection works
        except KennelError as failure:
            await self._let_go()
            if not self._ended:
                await self._pause_after(failure)

    async def _pause_after(self, failure: KennelError) -> None:
        """Waits a little before the next connection; raises when trying has no sense, or went on for too long."""
        tries = len(self._failed)
        if tries == len(PAUSES) or not may_follow_on(failure, self._reached):
            self._ended = True
            raise self._failed[0] if tries == len(PAUSES) else failure
        self._failed.append(failure)
        await asyncio.sleep(PAUSES[tries])

    async def __aenter__(self) -> AsyncFollowing[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncExport:
    """An iterator over an answer's lines, bytes with their line ends; one that is cut off ends with CONNECTION_LOST."""

    def __init__(self, transport: AsyncTransport, route: str) -> None:
        self._transport, self._route = transport, route
        self._reply: AsyncReply | None = None
        self._lines = Lines()
        self._waiting: list[bytes] = []
        self._ended = False

    def __aiter__(self) -> AsyncExport:
        return self

    async def __anext__(self) -> bytes:
        while not self._waiting:
            if self._ended:
                raise StopAsyncIteration
            if self._reply is None:
                self._reply = await self._transport.open(
                    self._route, accept="application/x-ndjson", query={}, headers={}, silence=self._transport.timeout
                )
            piece = await self._read(self._reply)
            self._waiting = [] if piece is None else self._lines.feed(piece)
        return self._waiting.pop(0) + b"\n"

    async def _read(self, reply: AsyncReply) -> bytes | None:
        """The next piece; at the end and at a failure the connection is given back."""
        piece = None
        try:
            piece = await reply.read()
        finally:
            if piece is None:
                await self.close()
        return piece

    async def close(self) -> None:
        """Ends the iteration and gives the connection back."""
        self._ended = True
        reply, self._reply = self._reply, None
        if reply is not None:
            await reply.close()

    async def __aenter__(self) -> AsyncExport:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
