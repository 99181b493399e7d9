"""Owns node's connection to the gateway: hands over each sandbox's listeners, again whenever the gateway comes back.

Called by unit (`add`, `remove`). Invariant: while the gateway is away nobody accepts, so nothing passes; after it is
back every sandbox is attached within a second; after `remove` no socket of the namespace is held here or there.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import select
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kennel.node import interception
from kennel.node.preview_sockets import PreviewSockets
from kennel.wire import gateway as wire

_PATIENCE = 2.0
_RETRY = 0.2

log = logging.getLogger("kennel.node.gateway")


@dataclass(slots=True)
class _Held:
    """A sandbox's namespace, and its listeners unless an earlier node made them and the gateway holds them."""

    handle: Path
    listeners: list[socket.socket] | None = None


class GatewayLink:
    """The gateway, by the path of its socket. Thread-safe."""

    def __init__(self, path: Path, learn: Callable[[str], None] | None = None) -> None:
        self._path, self._learn = path, learn
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()
        self._link: socket.socket | None = None
        self._splitter = wire.Splitter()
        self._decoder = msgspec.json.Decoder(wire.Reply)
        self._number = 0
        self._ended = threading.Event()
        self._connected = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="gateway-link", daemon=True)
        self._previews = PreviewSockets(path, self.handle)

    def start(self) -> None:
        """Begins keeping the connection; returns after the first try, so that a gateway that is here is known."""
        self._keeper.start()
        self._previews.start()
        self._connected.wait(_PATIENCE)

    def add(self, sandbox: str, handle: Path) -> None:
        """Makes the sandbox's listeners (or finds that they stand) and hands them over; idempotent."""
        with self._lock:
            if sandbox in self._held:
                return
            held = self._held[sandbox] = _Held(handle)
            _make(sandbox, held)
            self._attach(sandbox, held)

    def remove(self, sandbox: str) -> None:
        """Lets go of the sandbox's sockets, here and in the gateway."""
        with self._lock:
            held = self._held.pop(sandbox, None)
            _close(held)
            self._call(wire.Detach(sandbox), [])

    def handle(self, sandbox: str) -> Path | None:
        """The namespace of a sandbox that is attached."""
        held = self._held.get(sandbox)
        return held.handle if held is not None else None

    def close(self) -> None:
        """Lets go of everything here; the gateway keeps what it has until it ends."""
        self._ended.set()
        self._previews.close()
        self._keeper.join()
        with self._lock:
            self._lose("node ends")
            for held in self._held.values():
                _close(held)
            self._held.clear()

    def _keep(self) -> None:
        while not self._ended.wait(_RETRY if self._connected.is_set() else 0):
            with self._lock:
                if self._link is not None and _ended(self._link):
                    self._lose("it ended the connection")
                if self._link is None:
                    self._connect()
                    self._connected.set()

    def _connect(self) -> None:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            link.settimeout(_PATIENCE)
            link.connect(str(self._path))
        except OSError:
            link.close()
            return
        self._link, self._splitter = link, wire.Splitter()
        log.info("the gateway is here: %d sandboxes to attach", len(self._held))
        self._ask_authority()
        for sandbox, held in list(self._held.items()):
            try:
                if held.listeners is None:
                    _make(sandbox, held)
            except OSError as failure:  # the others are to be served all the same
                log.warning("%s has no listeners: %s", sandbox, failure)
            self._attach(sandbox, held)

    def _ask_authority(self) -> None:
        answer = self._call(wire.Authority(), [])
        if self._learn is None or answer is None:
            return
        try:
            self._learn(str(answer.ok))
        except (OSError, ValueError) as failure:
            log.error("sandboxes will not trust the gateway: %s", failure)

    def _attach(self, sandbox: str, held: _Held) -> None:
        if held.listeners is not None:
            self._call(wire.Attach(sandbox), [listener.fileno() for listener in held.listeners])

    def _call(self, request: wire.Request, descriptors: list[int]) -> wire.Reply | None:
        """Sends a request and waits for its answer; None from a gateway that is away, which hears when it is back."""
        link = self._link
        if link is None:
            return None
        self._number += 1
        try:
            frame = wire.encode(wire.Call(self._number, request))
            sent = socket.send_fds(link, [frame], descriptors) if descriptors else link.send(frame)
            link.sendall(frame[sent:])
            reply = self._reply(link)
        except (OSError, ValueError, msgspec.DecodeError) as failure:
            self._lose(str(failure))
            return None
        if reply.code is not None:
            log.error("the gateway refused %s: %s %s", type(request).__name__, reply.code, reply.message)
            return None
        return reply

    def _reply(self, link: socket.socket) -> wire.Reply:
        while True:
            data = link.recv(65536)
            if not data:
                raise ConnectionError("the gateway ended the connection")
            for body in self._splitter.feed(data):
                reply = self._decoder.decode(body)
                if reply.id == self._number:
                    return reply

    def _lose(self, why: str) -> None:
        if self._link is not None:
            log.warning("the gateway is away: %s", why)
            self._link.close()
            self._link = None


def _make(sandbox: str, held: _Held) -> None:
    try:
        held.listeners = interception.listen(held.handle)
    except OSError as failure:
        if failure.errno != errno.EADDRINUSE:
            raise
        log.info("the listeners of %s stand already", sandbox)


def _close(held: _Held | None) -> None:
    for listener in held.listeners or [] if held is not None else []:
        listener.close()


def _ended(link: socket.socket) -> bool:
    readable, _, _ = select.select([link], [], [], 0)
    if not readable:
        return False
    with contextlib.suppress(OSError):
        return not link.recv(1, socket.MSG_PEEK)
    return True
