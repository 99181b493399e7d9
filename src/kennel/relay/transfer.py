"""Owns a call whose bytes are a file's or a listing's: what comes before them, the bytes, credit both ways, the result.

Made by files through its link. Invariant: at most WINDOW bytes wait here for a slow consumer, at most one piece for a
slow guest; leaving it early closes the guest's side.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from kennel.guest import framing
from kennel.guest.framing import FrameError
from kennel.relay.call import Call, Line
from kennel.wire.errors import KennelError, error

WINDOW = 1024 * 1024
"""Bytes under way from a guest: 0.5 MiB makes it wait for credit between two pieces."""
_PIECE = 128 * 1024
_MOST_PATH = 64 * 1024
"""Bytes of a path relative to a directory; a tree can be deeper than one path may be long."""


class Transfer(Call):
    """One channel of bytes."""

    def __init__(self, line: Line, channel: int) -> None:
        super().__init__(line, channel)
        self._allowance = framing.Allowance(WINDOW)
        self._window = framing.Window()
        self._pieces: deque[bytes] = deque()
        self._head: dict[str, Any] | None = None
        self._changed: asyncio.Future[None] | None = None

    def begun(self) -> None:
        """The OPEN was sent: widens the guest's window."""
        self._line.send(framing.credit(self.channel, WINDOW - framing.INITIAL_WINDOW))

    # --- frames of the guest

    def _take(self, kind: int, payload: bytes) -> bool:
        if kind == framing.STDOUT:
            self._allowance.received(len(payload))
            if self.ended:
                self._consumed(len(payload))
            else:
                self._pieces.append(payload)
        elif kind == framing.CREDIT:
            self._window.grant(framing.read_credit(payload))
        elif kind == framing.HEAD:
            if self._head is not None:
                raise FrameError("a second head")
            self._head = framing.read_control(payload)
        elif kind == framing.RESULT:
            result = framing.read_control(payload)
            if not self._future.done():
                self._future.set_result(result)
            self._wake()
            return True
        else:
            return super()._take(kind, payload)
        self._wake()
        return False

    def _fail(self, failure: KennelError) -> None:
        super()._fail(failure)
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)

    async def _change(self) -> None:
        """Waits until the guest has said something, or the link takes bytes again."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    def writable(self) -> None:
        """The link takes bytes again."""
        self._wake()

    def _consumed(self, count: int) -> None:
        grant = self._allowance.consumed(count)
        if grant and not self.ended:
            self._line.send(framing.credit(self.channel, grant))

    # --- for whoever reads

    async def head(self) -> dict[str, Any]:
        """What the guest says before the bytes; raises what it refuses with."""
        while self._head is None:
            if self._future.done():
                self._future.result()
                raise error("PROTOCOL_VIOLATION", "the guest answered without a beginning", admitted="yes")
            await self._change()
        return self._head

    def __aiter__(self) -> Transfer:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._future.done():
                self._future.result()
                raise StopAsyncIteration
            await self._change()
        piece = self._pieces.popleft()
        self._consumed(len(piece))
        return piece

    async def result(self) -> dict[str, Any]:
        """The guest's last word."""
        return dict(await asyncio.shield(self._future))

    # --- for whoever writes

    async def write(self, data: bytes) -> None:
        """Sends bytes as the guest gives credit; raises what it ended with instead."""
        view = memoryview(data)
        while view:
            if self._future.done():
                self._future.result()
                raise error("PROTOCOL_VIOLATION", "the guest ended a file before its bytes", admitted="yes")
            count = min(len(view), self._window.room, _PIECE) if self._line.writable else 0
            if not count:
                await self._change()
                continue
            self._window.take(count)
            self._line.send(framing.header(framing.DATA, self.channel, count))
            self._line.send(view[:count])
            view = view[count:]

    def no_more(self) -> None:
        """No more bytes."""
        if not self.ended:
            self._line.send(framing.frame(framing.EOF, self.channel))

    async def finish(self) -> dict[str, Any]:
        """No more bytes; what the guest made of them."""
        if not self.ended:
            self._line.send(framing.frame(framing.EOF, self.channel))
        return await self.result()

    async def close(self) -> None:  # type: ignore[override]
        """Nobody wants it any more, and whoever still waits for a piece hears so."""
        self._pieces.clear()
        super().close()
        self._fail(error("OPERATION_INTERRUPTED", "the call was left", admitted=self.admitted))


def path_in(value: object) -> bytes:
    """The bytes of a path in an answer; FrameError when it is none."""
    if type(value) is not str:
        raise FrameError("a path that is no text")
    try:
        path = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise FrameError("a path with half a character") from None
    if b"\0" in path or len(path) > _MOST_PATH:
        raise FrameError("a path that cannot be one")
    return path
