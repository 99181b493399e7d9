"""Owns one connection to a server inside the sandbox, carried over a channel: bytes both ways, within credit.

Begun by `connect` (a port) and `interpreter` (its own socket). Invariant: it reaches loopback of this sandbox and
nothing else; at most a window of bytes waits for a server that does not read, and none is read from it that the peer
has no room for.
"""

from __future__ import annotations

from errno import EHOSTUNREACH
from os import strerror

from . import framing, launch, native
from .loop import READ, WRITE, Loop, Timer
from .probe import HOSTS, PATIENCE
from .refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .channel import Channel

    Dial = Callable[[], native.Socket | None]

_PIECE = 128 * 1024


class Tether:
    """HEAD when it is connected, STDOUT for what the server sends, RESULT at the server's end.

    `dials` are tried one after the other; `refused` is what the caller hears when none connects.
    """

    def __init__(self, loop: Loop, channel: Channel, dials: list[Dial], head: dict[str, Any], refused: Refusal) -> None:
        self._loop = loop
        self._channel = channel
        self._dials = dials
        self._head = head
        self._refused = refused
        self._socket: native.Socket | None = None
        self._timer: Timer | None = None
        self._error = 0
        self._events = 0
        self._connected = False
        self._queue: list[bytes] = []
        self._at = 0
        self._ending = False
        self._shut = False
        loop.soon(self._next)

    # --- connecting

    def _next(self) -> None:
        self._drop()
        while self._dials and self._channel.open:
            sock = self._dials.pop(0)()
            if sock is not None:
                self._socket = sock
                self._timer = self._loop.later(PATIENCE, self._next)
                self._events = WRITE
                self._loop.watch(sock.fileno(), WRITE, self._arrived)
                return
        self._refused.message += f": {strerror(self._error or EHOSTUNREACH)}"
        self._channel.refuse(self._refused)

    def _arrived(self, events: int) -> None:
        sock = self._socket
        if sock is None:
            return
        fault = native.socket_error(sock)
        if fault:
            self._error = fault
            self._next()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._connected = True
        native.no_delay(sock)
        self._loop.forget(sock.fileno())
        self._events = 0
        self._channel.opened()
        self._channel.head(self._head)
        self._arm()

    # --- moving bytes

    def _arm(self) -> None:
        sock = self._socket
        if sock is None or not self._connected:
            return
        if self._queue:
            self._write(sock)
        if self._socket is None:
            return
        if self._ending and not self._queue and not self._shut:
            self._shut = True
            native.no_more(sock)
        events = (WRITE if self._queue else 0) | (READ if self._channel.room > 0 else 0)
        if events == self._events:
            return
        if self._events:
            self._loop.forget(sock.fileno())
        self._events = events
        if events:
            self._loop.watch(sock.fileno(), events, self._ready)

    def _ready(self, events: int) -> None:
        sock = self._socket
        if sock is not None and events & ~WRITE and self._channel.room > 0:
            self._read(sock)
        self._arm()

    def _read(self, sock: native.Socket) -> None:
        try:
            data = sock.recv(min(_PIECE, self._channel.room))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._channel.output(framing.STDOUT, data)
        else:
            self._drop()
            self._channel.end(framing.RESULT, {})

    def _write(self, sock: native.Socket) -> None:
        try:
            while self._queue:
                piece = self._queue[0]
                self._at += sock.send(memoryview(piece)[self._at :], native.MSG_NOSIGNAL)
                if self._at == len(piece):
                    self._at = 0
                    del self._queue[0]
                    self._channel.consumed(len(piece))
        except BlockingIOError:
            return
        except OSError:
            # It may have answered before it closed: what it sent is still read.
            self._forget_queue()

    def _forget_queue(self) -> None:
        for piece in self._queue:
            self._channel.consumed(len(piece))
        self._queue.clear()
        self._at = 0

    def _drop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        sock, self._socket = self._socket, None
        if sock is not None:
            self._loop.close(sock.detach())

    # --- what the peer says

    def data(self, payload: bytes) -> None:
        """Bytes for the server."""
        if self._socket is None and self._connected:
            self._channel.consumed(len(payload))
            return
        self._queue.append(payload)
        self._arm()

    def eof(self) -> None:
        """No more of them."""
        self._ending = True
        self._arm()

    def flow(self) -> None:
        """There may be room."""
        self._arm()

    def signal(self, number: int) -> None:
        """Not here."""

    def close(self) -> None:
        """The peer is done with it."""
        self._dials.clear()
        self._drop()
        self._channel.end(framing.RESULT, {})


def to_port(loop: Loop, channel: Channel, args: dict[str, Any]) -> Tether:
    """A connection to a port of loopback: the `host` asked for, or whichever answers."""
    port, host = launch.int_of(args, "port", 1, 65535), launch.text_of(args, "host")
    if port is None or host not in (None, *HOSTS):
        raise Refusal("INVALID_PORT", "a port of loopback is needed")
    number = port

    def dial(host: str) -> Dial:
        return lambda: native.connecting(host, number)

    refused = Refusal("SERVICE_NOT_RESPONDING", f"nothing answers on port {port}", port=port)
    return Tether(loop, channel, [dial(each) for each in (HOSTS if host is None else (host,))], {"port": port}, refused)
