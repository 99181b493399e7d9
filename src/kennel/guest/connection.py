"""Owns one connection of whoever serves this sandbox: frames in, frames out, its channels.

Made by service for each accepted socket. Invariant: a peer that breaks the protocol or goes away costs its own
connection and what it ran in the foreground, never another's; what waits to be sent is bounded by credit and HIGH.
"""

from __future__ import annotations

import os

from . import framing
from .channel import Channel
from .framing import FrameError
from .loop import READ, WRITE, Loop
from .refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .channel import Operation

    Begin = Callable[[Channel, dict[str, Any]], Operation | None]

HIGH, LOW = 1024 * 1024, 256 * 1024
"""Unsent bytes at which programs' output is left in their pipes, and at which it is read again."""
_MOST_CHANNELS = 8192
_DEAF = 4 * HIGH
"""Unsent bytes at which the peer is not listened to either: answers to its own questions fill memory as well."""
_LAZY = 0.003
_VECTOR = 64


class Connection:
    """One peer."""

    def __init__(self, loop: Loop, fd: int, operations: Mapping[str, Begin], greeting: bytes) -> None:
        self._loop = loop
        self._fd = fd
        self._operations = operations
        self._decoder = framing.Decoder(framing.FROM_HOST)
        self._channels: dict[int, Channel] = {}
        self._newest = 0
        self._greeted = False
        self._out: list[bytes | memoryview] = []
        self._unsent = 0
        self._planned = False
        self._waiting = False
        self._events = READ
        self._lazy = False
        self.full = False
        self.on_gone: Callable[[Connection], None] = lambda connection: None
        loop.watch(fd, READ, self._ready)
        self.send(greeting)

    # --- out

    def send(self, *pieces: bytes, lazily: bool = False) -> None:
        """Queues pieces; they leave at the end of the tick, or with the next frame when that may wait."""
        if self._fd < 0:
            return
        self._out.extend(pieces)
        self._unsent += sum(map(len, pieces))
        self.full = self._unsent >= HIGH
        if self._planned:
            return
        if lazily:
            if not self._lazy:
                self._lazy = True
                self._loop.later(_LAZY, self._plan)
            return
        self._plan()

    def _plan(self) -> None:
        self._lazy = False
        if not self._planned and not self._waiting and self._out:
            self._planned = True
            self._loop.soon(self._flush)

    def _flush(self) -> None:
        self._planned = False
        while self._out and self._fd >= 0:
            try:
                sent = os.writev(self._fd, self._out[:_VECTOR])
            except BlockingIOError:
                break
            except OSError:
                self.close()
                return
            self._drop(sent)
        self._waiting = bool(self._out)
        self._arm()

    def _drop(self, sent: int) -> None:
        self._unsent -= sent
        done = 0
        for piece in self._out:
            if sent < len(piece):
                break
            sent -= len(piece)
            done += 1
        del self._out[:done]
        if sent:
            self._out[0] = memoryview(self._out[0])[sent:]
        if self.full and self._unsent <= LOW:
            self.full = False
            for channel in list(self._channels.values()):
                if channel.operation is not None:
                    channel.operation.flow()

    def _arm(self) -> None:
        events = (0 if self._unsent > _DEAF else READ) | (WRITE if self._waiting else 0)
        if self._fd >= 0 and events != self._events:
            self._events = events
            self._loop.change(self._fd, events)

    # --- in

    def _ready(self, events: int) -> None:
        try:
            if events & WRITE:
                self._flush()
            if events & ~WRITE and self._fd >= 0:
                self._read()
        except Exception:
            self.close()
            raise

    def _read(self) -> None:
        try:
            count = os.readv(self._fd, [self._decoder.space()])
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if count == 0:
            self.close()
            return
        self._decoder.filled(count)
        try:
            while self._fd >= 0 and (frame := self._decoder.next()) is not None:
                self._take(*frame)
        except FrameError:
            self.close()
        self._arm()

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if number == 0:
            self._take_own(kind, payload)
        elif kind == framing.OPEN:
            self._open(number, payload)
        else:
            channel = self._channels.get(number)
            if channel is not None:
                self._take_for(channel, kind, payload)
            elif number > self._newest:
                raise FrameError("a channel that was never opened")

    def _take_own(self, kind: int, payload: bytes) -> None:
        if kind == framing.HELLO:
            if self._greeted:
                raise FrameError("a second hello")
            framing.agree(framing.read_control(payload))
            self._greeted = True
        elif kind == framing.PING:
            self.send(framing.frame(framing.PONG, 0, payload))

    def _open(self, number: int, payload: bytes) -> None:
        if not self._greeted or number <= self._newest:
            raise FrameError("a channel opened before the hello, or twice")
        self._newest = number
        args = framing.read_control(payload)
        channel = Channel(self, number)
        if len(self._channels) >= _MOST_CHANNELS:
            channel.refuse(Refusal("RESOURCE_BUSY", f"{_MOST_CHANNELS} calls are in progress on this connection"))
            return
        self._channels[number] = channel
        begin = self._operations.get(str(args.get("op")))
        try:
            if begin is None:
                raise Refusal("NOT_SUPPORTED", "this guest does not know that operation")
            operation = begin(channel, args)
        except Refusal as refusal:
            channel.refuse(refusal)
            return
        except Exception as problem:
            channel.refuse(Refusal("INTERNAL_ERROR", f"the guest failed: {type(problem).__name__}"))
            raise
        if channel.open:
            channel.operation = operation

    def _take_for(self, channel: Channel, kind: int, payload: bytes) -> None:
        operation = channel.operation
        if kind == framing.DATA:
            channel.received(len(payload))
            if operation is not None:
                operation.data(payload)
        elif kind == framing.CREDIT:
            channel.window.grant(framing.read_credit(payload))
            if operation is not None:
                operation.flow()
        elif operation is None:
            return
        elif kind == framing.EOF:
            operation.eof()
        elif kind == framing.SIGNAL:
            operation.signal(payload[0])
        elif kind == framing.CLOSE:
            operation.close()

    # --- end

    def over(self, channel: Channel) -> None:
        """The channel has ended."""
        self._channels.pop(channel.id, None)

    def close(self) -> None:
        """The peer is gone or broke the protocol: whatever it ran in the foreground is killed."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        self._loop.close(fd)
        self._out.clear()
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.detach()
            if channel.operation is not None:
                channel.operation.close()
        self.on_gone(self)
