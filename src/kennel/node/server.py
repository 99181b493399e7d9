"""Owns node's socket: who may connect, one JSON message per command, descriptors beside the answers.

Called by assemble. Invariant: only root and the users it was told may speak (SO_PEERCRED); a malformed message ends
that connection only; verbs of different sandboxes run side by side.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from kennel.node import bucket_verbs, census, layer_verbs
from kennel.node.unit import Units
from kennel.node.uppers import Stacks
from kennel.wire import node as wire
from kennel.wire.errors import KennelError, error

log = logging.getLogger("kennel.node")

Answer = tuple[Any, list[int]]

_SANDBOX = re.compile(r"[a-z0-9]{8,40}")
_HOSTNAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")


class Server:
    """Answers typed commands on one SOCK_SEQPACKET socket."""

    def __init__(self, units: Units, path: Path, allowed_uids: frozenset[int], facts: dict[str, Any]) -> None:
        self._units = units
        self._path = path
        self._allowed = allowed_uids
        self._facts = facts
        self._pool = ThreadPoolExecutor(32, "verb")
        self._long = ThreadPoolExecutor(16, "layers")
        # Of their own: stores that do not answer hold up nothing but other buckets.
        self._buckets = ThreadPoolExecutor(8, "buckets")
        self._decoder = msgspec.json.Decoder(wire.Call)

    def serve(self, group: int) -> None:
        """Listens until the process ends; the socket is for root and `group`."""
        self._path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as listener:
            listener.bind(str(self._path))
            os.chown(self._path, 0, group)
            os.chmod(self._path, 0o660)
            listener.listen(16)
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._converse, args=(connection,), daemon=True, name="peer").start()

    def _converse(self, connection: socket.socket) -> None:
        with connection:
            _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid not in self._allowed:
                log.warning("refused a peer with uid %d", uid)
                return
            sending = threading.Lock()
            while True:
                try:
                    message, given, _, _ = socket.recv_fds(connection, wire.MAX_MESSAGE, wire.MAX_GIVEN)
                except OSError as gone:  # a caller that was killed while answers were on their way
                    log.info("a caller is gone: %s", gone)
                    return
                if not message:
                    _close(given)
                    return
                try:
                    call = self._decoder.decode(message)
                except msgspec.DecodeError as failure:
                    log.warning("a malformed command ends its connection: %s", failure)
                    _close(given)
                    return
                self._pool_of(call.request).submit(self._answer, connection, sending, call, given)

    def _pool_of(self, request: wire.Request) -> ThreadPoolExecutor:
        kind = type(request)
        return self._long if kind in layer_verbs.VERBS else self._buckets if bucket_verbs.waits(request) else self._pool

    def _answer(self, connection: socket.socket, sending: threading.Lock, call: wire.Call, given: list[int]) -> None:
        descriptors: list[int] = []
        try:
            ok, descriptors = self._handle(call.request, given)
            reply = wire.Reply(call.id, ok=ok)
        except KennelError as refused:
            reply = wire.Reply(call.id, None, refused.code, refused.message, refused.details, refused.hint)
        except Exception as failure:  # whatever went wrong must reach the caller, not hang it
            log.exception("%s failed", type(call.request).__name__)
            reply = wire.Reply(call.id, None, "INTERNAL_ERROR", f"{type(call.request).__name__}: {failure}")
        try:
            with sending:
                socket.send_fds(connection, [msgspec.json.encode(reply)], descriptors)
        except OSError as gone:
            log.info("the caller left before its answer: %s", gone)
        finally:
            _close(descriptors)
            _close(given)

    def _handle(self, request: wire.Request, given: Sequence[int]) -> Answer:
        # Control is not trusted with the machine: what becomes a path or a host name here is checked here.
        sandbox, hostname = getattr(request, "sandbox", None), getattr(request, "hostname", None)
        if sandbox is not None and not _SANDBOX.fullmatch(sandbox):
            raise error("VALIDATION_FAILED", "a sandbox id is 8 to 40 of a-z and 0-9", admitted="no")
        if hostname is not None and not _HOSTNAME.fullmatch(hostname):
            raise error("VALIDATION_FAILED", "a host name is 1 to 63 of a-z, 0-9, '.' and '-'", admitted="no")
        kind = type(request)
        if (verb := layer_verbs.VERBS.get(kind) or bucket_verbs.VERBS.get(kind)) is not None:
            return verb(self._units, request, given)
        return _VERBS[type(request)](self, request)

    def hello(self, request: wire.Hello) -> Answer:
        if request.protocol != wire.PROTOCOL:
            raise error("NODE_UNAVAILABLE", f"this node speaks protocol {wire.PROTOCOL}, not {request.protocol}")
        machine, promised = self._units.machine(), self._units.promised()
        return {**self._facts, "machine": msgspec.to_builtins(machine), "promised": msgspec.to_builtins(promised)}, []

    def resolve_image(self, request: wire.ResolveImage) -> Answer:
        return self._units.images.resolve(request.image), []

    def list_images(self, _: wire.ListImages) -> Answer:
        return [image.to_wire() for image in self._units.images.list()], []

    def build(self, request: wire.Build) -> Answer:
        self._units.build(request.sandbox, request.instance_type, request.image_digest, request.isolation)
        return None, []

    def start(self, request: wire.Start) -> Answer:
        root, usr = (None if each is None else layer_verbs.checked(each) for each in (request.root, request.usr))
        asked = Stacks(layer_verbs.checked(request.workspace), root, usr, request.made_on)
        return self._units.start(request.sandbox, request.hostname, asked, fresh=request.fresh), []

    def limit(self, request: wire.Limit) -> Answer:
        self._units.limit(request.sandbox, request.hostname)
        return None, []

    def connect(self, request: wire.Connect) -> Answer:
        connection, pidfd = self._units.connect(request.sandbox)
        return None, [connection.detach(), pidfd]

    def stop(self, request: wire.Stop) -> Answer:
        self._units.stop(request.sandbox)
        return None, []

    def remove(self, request: wire.Remove) -> Answer:
        self._units.remove(request.sandbox)
        return None, []

    def usage(self, request: wire.Usage) -> Answer:
        return self._units.usage(request.sandbox), []

    def census(self, _: wire.Census) -> Answer:
        return census.take(self._units), []


_VERBS: dict[type, Callable[[Server, Any], Answer]] = {
    wire.Hello: Server.hello,
    wire.ResolveImage: Server.resolve_image,
    wire.ListImages: Server.list_images,
    wire.Build: Server.build,
    wire.Start: Server.start,
    wire.Limit: Server.limit,
    wire.Connect: Server.connect,
    wire.Stop: Server.stop,
    wire.Remove: Server.remove,
    wire.Usage: Server.usage,
    wire.Census: Server.census,
}


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
