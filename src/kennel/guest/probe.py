"""Owns one look at a port of the sandbox: does anything accept, or answer HTTP with a status that will do.

Made by waiting. Invariant: nothing here blocks; a server that accepts and says nothing costs one PATIENCE; at most a
status line's worth of an answer is read.
"""

from __future__ import annotations

from . import launch, native
from .loop import READ, WRITE, Loop, Timer
from .refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

HOSTS = ("127.0.0.1", "::1")
PATIENCE = 5.0
_MOST_LINE = 4096
_MOST_PATH = 2048


class Probe:
    """Tries both loopback addresses; `tried` hears the status, 0 for a port that accepts, None when it was nothing."""

    def __init__(self, loop: Loop, args: dict[str, Any], tried: Callable[[int | None], None]) -> None:
        port = launch.int_of(args, "port", 1, 65535)
        if port is None:
            raise Refusal("INVALID_PORT", "a port is needed")
        self.port = port
        self._loop = loop
        self._tried = tried
        self._path = launch.text_of(args, "path") if args.get("mode") == "http" else None
        if self._path is not None and (len(self._path) > _MOST_PATH or not _plain(self._path)):
            raise Refusal("VALIDATION_FAILED", "path must be a plain path that begins with '/'")
        self._low = launch.int_of(args, "low", 100, 599) or 200
        self._high = launch.int_of(args, "high", 100, 599) or 399
        self._socket: native.Socket | None = None
        self._timer: Timer | None = None
        self._hosts: list[str] = []
        self._answer = b""

    def try_now(self) -> None:
        """One look; `tried` is called once for it."""
        self._hosts = list(HOSTS)
        self._next()

    def stop(self) -> None:
        """No more."""
        self._hosts = []
        self._drop()

    def _drop(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            self._loop.close(sock.detach())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next(self) -> None:
        self._drop()
        while self._hosts:
            sock = native.connecting(self._hosts.pop(0), self.port)
            if sock is not None:
                self._socket, self._answer = sock, b""
                self._timer = self._loop.later(PATIENCE, self._next)
                self._loop.watch(sock.fileno(), WRITE, self._connected)
                return
        self._tried(None)

    def _connected(self, events: int) -> None:
        sock = self._socket
        if sock is None:
            return
        if native.socket_error(sock):
            self._next()
        elif self._path is None:
            self._done(0)
        else:
            words = f"GET {self._path} HTTP/1.1\r\nHost: localhost:{self.port}\r\nConnection: close\r\n\r\n"
            try:
                sock.send(words.encode("ascii"), native.MSG_NOSIGNAL)
            except OSError:
                self._next()
                return
            self._loop.forget(sock.fileno())
            self._loop.watch(sock.fileno(), READ, self._answered)

    def _answered(self, events: int) -> None:
        sock = self._socket
        if sock is None:
            return
        try:
            data = sock.recv(_MOST_LINE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._answer += data
        line, newline, _ = self._answer.partition(b"\n")
        if not newline and data and len(self._answer) < _MOST_LINE:
            return
        words = line.split()
        status = int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit() else 0
        if self._low <= status <= self._high:
            self._done(status)
        else:
            self._next()

    def _done(self, status: int) -> None:
        self.stop()
        self._tried(status)


def _plain(path: str) -> bool:
    return path.startswith("/") and path.isascii() and path.isprintable() and " " not in path
