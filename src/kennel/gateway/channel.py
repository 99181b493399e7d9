"""Owns the gateway's control socket: who connects (SO_PEERCRED), what they may say, descriptors beside their words.

Called by process. Invariant: only node's and control's users are heard, each with its own messages; a peer that says
something else is cut off; when control goes, its last word on policy stays, and what needs its consent is refused.
"""

from __future__ import annotations

import array
import asyncio
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from kennel.wire import gateway as wire
from kennel.wire.errors import KennelError

_READ = 256 * 1024
_MAX_BACKLOG = 64 * 1024 * 1024
_MAX_DESCRIPTORS = 64

log = logging.getLogger("kennel.gateway.channel")

Handler = Callable[["Peer", Any, list[socket.socket]], Any]


class Peer:
    """One connection of node or control."""

    def __init__(self, link: socket.socket, is_control: bool, handler: Handler, gone: Callable[[Peer], None]) -> None:
        self.is_control = is_control
        self._link, self._handler, self._gone = link, handler, gone
        self._splitter = wire.Splitter()
        self._descriptors: deque[int] = deque()
        self._out: deque[memoryview] = deque()
        self._out_bytes = 0
        self._closed = False
        self._decoder = msgspec.json.Decoder(wire.Call)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(link.fileno(), self._readable)

    def send(self, frame: bytes) -> None:
        """Sends a frame, in order; a peer that does not read loses its connection."""
        if self._closed:
            return
        self._out.append(memoryview(frame))
        self._out_bytes += len(frame)
        if len(self._out) == 1:
            self._writable()
        if self._out_bytes > _MAX_BACKLOG:
            self.close("it does not read what it is told")

    def close(self, why: str) -> None:
        if self._closed:
            return
        self._closed = True
        log.info("%s left: %s", "control" if self.is_control else "node", why)
        self._loop.remove_reader(self._link.fileno())
        self._loop.remove_writer(self._link.fileno())
        self._link.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._gone(self)

    def _writable(self) -> None:
        try:
            while self._out:
                sent = self._link.send(self._out[0])
                self._out_bytes -= sent
                if sent < len(self._out[0]):
                    self._out[0] = self._out[0][sent:]
                else:
                    self._out.popleft()
            self._loop.remove_writer(self._link.fileno())
        except BlockingIOError:
            self._loop.add_writer(self._link.fileno(), self._writable)
        except OSError as failure:
            self.close(str(failure))

    def _readable(self) -> None:
        try:
            data, descriptors = _receive(self._link)
        except BlockingIOError:
            return
        except OSError as failure:
            self.close(str(failure))
            return
        self._descriptors += descriptors
        if len(self._descriptors) > _MAX_DESCRIPTORS or (descriptors and self.is_control):
            self.close("descriptors that belong to no message")
            return
        if not data:
            self.close("end of its words")
            return
        try:
            for body in self._splitter.feed(data):
                if not self._closed:
                    self._answer(self._decoder.decode(body))
        except (msgspec.DecodeError, ValueError) as failure:
            self.close(f"a malformed frame: {failure}")

    def _answer(self, call: wire.Call) -> None:
        allowed = wire.FROM_CONTROL if self.is_control else wire.FROM_NODE
        if not isinstance(call.request, allowed):
            raise ValueError(f"{type(call.request).__name__} is not for this peer to say")
        sockets = self._sockets(wire.descriptors(call.request))
        try:
            ok = self._handler(self, call.request, sockets)
            reply = wire.Reply(call.id, ok=ok)
        except KennelError as refused:
            reply = wire.Reply(call.id, None, refused.code, refused.message)
        except Exception as failure:  # whatever went wrong must reach the caller, not hang it
            log.exception("%s failed", type(call.request).__name__)
            reply = wire.Reply(call.id, None, "INTERNAL_ERROR", f"{type(failure).__name__}: {failure}")
        self.send(wire.encode(reply))

    def _sockets(self, number: int) -> list[socket.socket]:
        if len(self._descriptors) < number:
            raise ValueError("a message without its descriptors")
        taken = [socket.socket(fileno=self._descriptors.popleft()) for _ in range(number)]
        for one in taken:
            one.setblocking(False)
        return taken


class Channel:
    """The listening socket and its peers."""

    def __init__(self, listener: socket.socket, node_uid: int, control_uid: int, handler: Handler) -> None:
        self._listener, self._node, self._control, self._handler = listener, node_uid, control_uid, handler
        self._peers: set[Peer] = set()
        self.control_gone: Callable[[Peer], None] = lambda _: None
        self.node_gone: Callable[[Peer], None] = lambda _: None
        listener.setblocking(False)
        asyncio.get_running_loop().add_reader(listener.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            link, _ = self._listener.accept()
        except OSError as failure:
            log.info("a peer did not arrive: %s", failure)
            return
        link.setblocking(False)
        _, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (self._node, self._control):
            log.warning("refused a peer with uid %d", uid)
            link.close()
            return
        self._peers.add(Peer(link, uid == self._control, self._handler, self._left))

    def _left(self, peer: Peer) -> None:
        self._peers.discard(peer)
        if peer.is_control:
            self.control_gone(peer)
        else:
            self.node_gone(peer)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        self._listener.close()
        for peer in list(self._peers):
            peer.close("the gateway ends")


def _receive(link: socket.socket) -> tuple[bytes, list[int]]:
    size = array.array("i").itemsize
    data, ancillary, flags, _ = link.recvmsg(_READ, socket.CMSG_SPACE(_MAX_DESCRIPTORS * size), socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % size])
    if flags & socket.MSG_CTRUNC:
        for descriptor in descriptors:
            os.close(descriptor)
        raise OSError(0, "too many descriptors at once")
    return data, descriptors.tolist()
