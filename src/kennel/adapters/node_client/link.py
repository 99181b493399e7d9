"""Owns control's connection to node: numbered calls out, replies and descriptors in, over SOCK_SEQPACKET.

Implements ports.node for control. Invariant: when node goes, every pending call raises NODE_UNAVAILABLE with
`admitted: unknown` at once, and the next call connects anew; a descriptor that nobody waits for is closed.
"""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from kennel.steps import step
from kennel.wire import node as wire
from kennel.wire.errors import KennelError, error

T = TypeVar("T")
_MAX_DESCRIPTORS = 8


class NodeClient:
    """One node, by the path of its socket; None where sandboxes are not enabled, and every call says so."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._waiting: dict[int, asyncio.Future[tuple[Any, list[int]]]] = {}
        self._number = 0
        self._decoder = msgspec.json.Decoder(wire.Reply)
        self.on_loss: Callable[[], None] = _ignore
        """Called when node went away; work that was cut off there wants looking after."""

    async def hello(self) -> dict[str, Any]:
        return await self._call(wire.Hello(), dict[str, Any])

    async def resolve_image(self, image: str) -> str:
        return await self._call(wire.ResolveImage(image), str)

    async def list_images(self) -> list[dict[str, Any]]:
        return await self._call(wire.ListImages(), list[dict[str, Any]])

    async def build(self, sandbox: str, instance_type: str, image_digest: str, isolation: str) -> None:
        await self._call(wire.Build(sandbox, instance_type, image_digest, isolation), type(None))

    async def start(self, request: wire.Start) -> wire.Started:
        """How it runs now."""
        return await self._call(request, wire.Started)

    async def limit(self, sandbox: str, hostname: str | None = None) -> None:
        await self._call(wire.Limit(sandbox, hostname), type(None))

    async def connect(self, sandbox: str) -> tuple[socket.socket, int]:
        """A socket connected to the guest and a pidfd of its PID 1, both the caller's to close."""
        _, descriptors = await self._send(wire.Connect(sandbox))
        if len(descriptors) != 2:
            _close(descriptors)
            raise error("NODE_UNAVAILABLE", "node answered a connect without its two descriptors", admitted="no")
        return socket.socket(fileno=descriptors[0]), descriptors[1]

    async def stop(self, sandbox: str) -> None:
        await self._call(wire.Stop(sandbox), type(None))

    async def remove(self, sandbox: str) -> None:
        await self._call(wire.Remove(sandbox), type(None))

    async def usage(self, sandbox: str) -> wire.Counters:
        return await self._call(wire.Usage(sandbox), wire.Counters)

    async def census(self) -> list[wire.Unit]:
        return await self._call(wire.Census(), list[wire.Unit])

    async def pack(self, request: wire.Pack, listing: int | None = None) -> wire.Packed | None:
        """The uppers as layers of that machine; `listing`: a file of paths to leave out, the caller's to close."""
        given = [] if listing is None else [listing]
        ok, _ = await self._send(request, given)
        return msgspec.convert(ok, wire.Packed | None)

    async def point(self, sandbox: str, seen: str) -> wire.Pointed:
        """The uppers of one that runs as layers of that machine, unless they are as at the mark `seen`."""
        return await self._call(wire.Point(sandbox, seen), wire.Pointed)

    async def drop_disk(self, sandbox: str) -> None:
        await self._call(wire.DropDisk(sandbox), type(None))

    async def compact(self, layers: Sequence[str], *, bottom: bool) -> wire.Made:
        return await self._call(wire.Compact(list(layers), bottom), wire.Made)

    async def compare(self, request: wire.Compare) -> tuple[wire.Compared, int]:
        """The counts, and a descriptor of the list, the caller's to close."""
        ok, descriptors = await self._send(request)
        return msgspec.convert(ok, wire.Compared), _one(descriptors)

    async def export(self, layers: Sequence[str], target: int) -> None:
        await self._send(wire.Export(list(layers)), [target])

    async def open_layer(self, layer: str) -> int:
        _, descriptors = await self._send(wire.OpenLayer(layer))
        return _one(descriptors)

    async def begin_import(self) -> int:
        _, descriptors = await self._send(wire.BeginImport())
        return _one(descriptors)

    async def commit_import(self, written: int, layer: str) -> None:
        await self._send(wire.CommitImport(layer), [written])

    async def list_layers(self) -> wire.LayersHere:
        return await self._call(wire.ListLayers(), wire.LayersHere)

    async def remove_layer(self, layer: str) -> None:
        await self._call(wire.RemoveLayer(layer), type(None))

    async def mount_bucket(self, request: wire.MountBucket) -> wire.BucketHere:
        return await self._call(request, wire.BucketHere)

    async def unmount_bucket(self, sandbox: str, mount_path: str | None, *, force: bool) -> None:
        """One, or without a path all of them."""
        await self._call(wire.UnmountBucket(sandbox, mount_path, force), type(None))

    async def list_buckets(self, sandbox: str) -> list[wire.BucketHere]:
        return await self._call(wire.ListBuckets(sandbox), list[wire.BucketHere])

    def close(self) -> None:
        """Ends the connection; pending calls raise."""
        self._lose("the connection to node was closed")

    async def _call(self, request: wire.Request, kind: type[T]) -> T:
        ok, descriptors = await self._send(request)
        _close(descriptors)
        return msgspec.convert(ok, kind)

    async def _send(self, request: wire.Request, given: Sequence[int] = ()) -> tuple[Any, list[int]]:
        with step(_name, request):
            return await self._ask(request, given)

    async def _ask(self, request: wire.Request, given: Sequence[int]) -> tuple[Any, list[int]]:
        link = self._socket or self._connect()
        self._number += 1
        number = self._number
        future: asyncio.Future[tuple[Any, list[int]]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            try:
                await self._write(link, msgspec.json.encode(wire.Call(number, request)), given)
            except OSError as failure:
                self._lose(f"node went away: {failure}")
            return await future
        finally:
            self._waiting.pop(number, None)

    async def _write(self, link: socket.socket, message: bytes, given: Sequence[int]) -> None:
        # Messages are under 20 KiB; a full socket means node is far behind, so waiting a little is right.
        for _ in range(1000):
            try:
                socket.send_fds(link, [message], given)
                return
            except BlockingIOError:
                await asyncio.sleep(0.01)
        raise error("NODE_UNAVAILABLE", "node does not take commands", admitted="no")

    def _connect(self) -> socket.socket:
        if self._path is None:
            hint = "Kennel was started with --no-node; start it without, as root"
            raise error("NODE_UNAVAILABLE", "sandboxes are not enabled here", hint=hint, admitted="no")
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            link.connect(self._path)
        except OSError as failure:
            link.close()
            raise error("NODE_UNAVAILABLE", f"node does not answer: {failure.strerror}", admitted="no") from failure
        self._socket = link
        asyncio.get_running_loop().add_reader(link.fileno(), self._readable)
        return link

    def _readable(self) -> None:
        link = self._socket
        if link is None:
            return
        try:
            message, descriptors = _receive(link)
        except BlockingIOError:
            return
        except OSError as failure:
            self._lose(f"node went away: {failure}")
            return
        if not message:
            self._lose("node went away")
            return
        reply = self._decoder.decode(message)
        future = self._waiting.get(reply.id)
        if future is None or future.done():
            _close(descriptors)
        elif reply.code is not None:
            _close(descriptors)
            future.set_exception(_failure(reply))
        else:
            future.set_result((reply.ok, descriptors))

    def _lose(self, why: str) -> None:
        link, self._socket = self._socket, None
        if link is not None:
            asyncio.get_running_loop().remove_reader(link.fileno())
            link.close()
            self.on_loss()
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(error("NODE_UNAVAILABLE", why, admitted="unknown", retry_after_ms=1000))


def _ignore() -> None:
    return None


def _name(request: wire.Request) -> str:
    return f"node {request.__struct_config__.tag}"


def _failure(reply: wire.Reply) -> KennelError:
    admitted = "no" if reply.code != "INTERNAL_ERROR" else "unknown"
    return error(
        reply.code or "INTERNAL_ERROR",
        reply.message or "node failed",
        details=reply.details,
        hint=reply.hint,
        admitted=admitted,  # type: ignore[arg-type]
    )


def _receive(link: socket.socket) -> tuple[bytes, list[int]]:
    size = array.array("i").itemsize
    message, ancillary, _, _ = link.recvmsg(
        wire.MAX_MESSAGE * 8, socket.CMSG_SPACE(_MAX_DESCRIPTORS * size), socket.MSG_CMSG_CLOEXEC
    )
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % size])
    return message, descriptors.tolist()


def _one(descriptors: list[int]) -> int:
    if len(descriptors) != 1:
        _close(descriptors)
        raise error("NODE_UNAVAILABLE", "node answered without its descriptor", admitted="no")
    return descriptors[0]


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
