"""Owns node's answers to the gateway's wish for sockets in a namespace, through which visitors reach a server there.

Made by the gateway link. Invariant: only namespaces of sandboxes that are attached are entered; node hands
out unconnected sockets and neither dials nor reads; a gateway that is away is waited for.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from kennel.node import interception
from kennel.wire import gateway as wire

_RETRY = 0.2
_PATIENCE = 2.0

log = logging.getLogger("kennel.node.previews")


class PreviewSockets:
    """`PreviewSockets(path, handle)`: the gateway's socket, and a sandbox's namespace or None. A thread of its own."""

    def __init__(self, path: Path, handle: Callable[[str], Path | None]) -> None:
        self._path, self._handle = path, handle
        self._decoder = msgspec.json.Decoder(wire.Need | wire.Reply)
        self._number = 0
        self._ended = threading.Event()
        self._link: socket.socket | None = None
        self._thread = threading.Thread(target=self._keep, name="preview-sockets", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        link = self._link
        if link is not None:
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError as gone:
                log.debug("the gateway was gone already: %s", gone)
        if self._thread.is_alive():
            self._thread.join()

    def _keep(self) -> None:
        while not self._ended.is_set():
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            try:
                link.settimeout(_PATIENCE)
                link.connect(str(self._path))
                link.settimeout(None)
                self._link = link
                self._serve(link)
            except (OSError, ValueError, msgspec.DecodeError) as failure:
                log.debug("the gateway is away: %s", failure)
            finally:
                self._link = None
                link.close()
            self._ended.wait(_RETRY)

    def _serve(self, link: socket.socket) -> None:
        if self._ended.is_set():
            return
        splitter = wire.Splitter()
        self._say(link, wire.Supply(), [])
        while data := link.recv(65536):
            for body in splitter.feed(data):
                frame = self._decoder.decode(body)
                if isinstance(frame, wire.Need):
                    self._supply(link, frame)
                elif frame.code is not None:
                    log.error("the gateway refused sockets: %s %s", frame.code, frame.message)

    def _supply(self, link: socket.socket, need: wire.Need) -> None:
        made: list[socket.socket] = []
        answer = wire.Sockets(need.sandbox, need.attachment)
        handle = self._handle(need.sandbox)
        try:
            if handle is None:
                answer.fault = "the sandbox is gone"
            else:
                made = interception.unconnected(handle)
        except OSError as failure:
            answer.fault = f"its network cannot be entered: {failure.strerror or failure}"
        try:
            self._say(link, answer, made)
        finally:
            for one in made:
                one.close()

    def _say(self, link: socket.socket, request: wire.Request, sockets: list[socket.socket]) -> None:
        self._number += 1
        frame = wire.encode(wire.Call(self._number, request))
        sent = socket.send_fds(link, [frame], [one.fileno() for one in sockets]) if sockets else link.send(frame)
        link.sendall(frame[sent:])
