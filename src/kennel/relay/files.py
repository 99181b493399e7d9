"""Owns the files of a guest as control sees them: questions about files, transfers, with every answer checked.

Made by link: ports' GuestFiles. Invariant: what a guest claims about a file is of the right type and size before
anybody sees it; a claim that is not ends its link.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, TypeVar, cast

from kennel.domain.file import ChangeReport, Entry, FileFacts, FileType, SaveOptions, WatchOptions, WriteOptions
from kennel.guest import framing
from kennel.guest.framing import FrameError
from kennel.relay import watches
from kennel.relay.archives import RemotePack, RemoteRestore, RemoteUnpack
from kennel.relay.run import RunCall
from kennel.relay.transfer import Transfer, path_in
from kennel.relay.watches import RemoteWatch

T = TypeVar("T")
_TYPES = ("file", "directory", "symlink", "other")
_MOST = 1 << 63
_MOST_LINE = 64 * 1024
_KEPT = 64 * 1024
"""Bytes kept of what the archive program complains about."""


class Caller(Protocol):
    """What this needs of its link."""

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]: ...
    def transfer(self, op: str, args: dict[str, Any]) -> Transfer: ...
    def program(self, op: str, args: dict[str, Any], kept: int | None) -> RunCall: ...
    def checked(self, read: Callable[[], T]) -> T: ...


def facts(body: dict[str, Any]) -> FileFacts:
    """A file's facts in an answer; FrameError when they are none."""
    kind, size, target = body.get("type"), body.get("size"), body.get("target")
    if kind not in _TYPES or (size is not None and not _number(size, 0)):
        raise FrameError("a file of no type or size")
    names = ("mode", "uid", "gid", "mtime", "ctime", "inode", "links")
    numbers = [body.get(name) for name in names]
    if not all(_number(value, -_MOST) for value in numbers) or not 0 <= cast(int, numbers[0]) <= 0o7777:
        raise FrameError("a file with impossible numbers")
    if target is not None and type(target) is not str:
        raise FrameError("a link to no path")
    mode, uid, gid, mtime, ctime, inode, links = cast("list[int]", numbers)
    where = None if target is None else path_in(target)
    return FileFacts(cast(FileType, kind), size, mode, uid, gid, mtime, ctime, inode, links, where)


def _number(value: object, low: int) -> bool:
    return type(value) is int and low <= value < 2 * _MOST


def told(path: bytes, args: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operation on `path`, without what is None or the default."""
    return {"path": os.fsdecode(path)} | {name: value for name, value in args.items() if value is not None}


class RemoteDownload:
    """ports' Download."""

    def __init__(self, transfer: Transfer, head: dict[str, Any]) -> None:
        self.facts = facts(head)
        start, count = head.get("start"), head.get("count")
        if not _number(start, 0) or (count is not None and not _number(count, 0)):
            raise FrameError("a range that is none")
        self.start, self.count = cast(int, start), cast("int | None", count)
        self._transfer = transfer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        sent = 0
        async for piece in self._transfer:
            sent += len(piece)
            if self.count is not None and sent > self.count:
                await self._transfer.close()
                break
            yield piece

    async def close(self) -> None:
        """Lets go of it."""
        await self._transfer.close()


class RemoteUpload:
    """ports' Upload."""

    def __init__(self, link: Caller, transfer: Transfer) -> None:
        self._link = link
        self._transfer = transfer

    async def write(self, data: bytes) -> None:
        """Sends bytes."""
        await self._transfer.write(data)

    async def finish(self) -> tuple[FileFacts, bool]:
        """The new file's facts, and whether there was none before."""
        body = await self._transfer.finish()
        return self._link.checked(lambda: facts(body)), body.get("created") is True

    async def close(self) -> None:
        """Gives it up unless it is finished."""
        await self._transfer.close()


class RemoteListing:
    """ports' Listing."""

    def __init__(self, link: Caller, transfer: Transfer) -> None:
        self._link = link
        self._transfer = transfer
        self.more = False
        self.unreadable = 0

    async def __aiter__(self) -> AsyncIterator[list[Entry]]:
        rest = b""
        async for piece in self._transfer:
            *lines, rest = (rest + piece).split(b"\n")
            yield self._link.checked(lambda lines=lines, rest=rest: _entries(lines, rest))  # type: ignore[misc]
        body = await self._transfer.result()
        unreadable = body.get("unreadable")
        self.more = body.get("more") is True
        self.unreadable = unreadable if type(unreadable) is int else 0

    async def close(self) -> None:
        """Lets go of it."""
        await self._transfer.close()


def _entries(lines: list[bytes], rest: bytes) -> list[Entry]:
    if len(rest) > _MOST_LINE:
        raise FrameError("a listing without lines")
    bodies = [framing.read_control(line) for line in lines]
    return [Entry(path_in(body.get("name")), facts(body)) for body in bodies]


class RemoteFiles:
    """ports' GuestFiles."""

    def __init__(self, link: Caller) -> None:
        self._link = link

    async def stat(self, path: bytes, *, follow: bool = True, user: str | None = None) -> FileFacts:
        """What is there; FILE_NOT_FOUND and the like."""
        body = await self._link.ask("file.stat", told(path, {"follow": follow, "user": user}))
        return self._link.checked(lambda: facts(body))

    async def read(
        self, path: bytes, *, start: int = 0, count: int | None = None, user: str | None = None
    ) -> RemoteDownload:
        """A range of a file; `start` below 0 counts from its end."""
        transfer = self._link.transfer("file.read", told(path, {"start": start, "count": count, "user": user}))
        try:
            head = await transfer.head()
            return self._link.checked(lambda: RemoteDownload(transfer, head))
        except BaseException:
            await transfer.close()
            raise

    async def write(self, path: bytes, options: WriteOptions) -> RemoteUpload:
        """A file in the making; what is wrong with the path is raised by its first write or its finish."""
        args = {
            "mode": options.mode,
            "exclusive": options.exclusive,
            "parents": options.parents,
            "user": options.user,
        }
        return RemoteUpload(self._link, self._link.transfer("file.write", told(path, args)))

    async def list(
        self,
        path: bytes,
        *,
        recursive: bool = False,
        hidden: bool = False,
        limit: int | None = None,
        after: bytes | None = None,
        user: str | None = None,
    ) -> RemoteListing:
        """A directory's entries; with `limit` sorted, from the one behind `after` on."""
        args = {
            "recursive": recursive,
            "hidden": hidden,
            "limit": limit,
            "after": None if after is None else os.fsdecode(after),
            "user": user,
        }
        return RemoteListing(self._link, self._link.transfer("file.list", told(path, args)))

    async def change(
        self, verb: str, path: bytes, options: dict[str, Any], user: str | None = None
    ) -> tuple[bytes, FileFacts | None]:
        """One of the verbs that change a tree."""
        args = {name: os.fsdecode(value) if isinstance(value, bytes) else value for name, value in options.items()}
        body = await self._link.ask(f"file.{verb}", told(path, {**args, "user": user}))
        place = body.get("path")
        return self._link.checked(
            lambda: (path if place is None else path_in(place), facts(body) if "type" in body else None)
        )

    async def pack(self, path: bytes, *, gzip: bool = False, user: str | None = None) -> RemotePack:
        """A tree as tar."""
        return RemotePack(self._link.program("archive.pack", told(path, {"gzip": gzip, "user": user}), None))

    async def unpack(self, path: bytes, *, user: str | None = None) -> RemoteUnpack:
        """A tar's content below a directory."""
        return RemoteUnpack(self._link.program("archive.unpack", told(path, {"user": user}), _KEPT))

    async def save(self, path: bytes, options: SaveOptions, left_out: bytes) -> RemotePack:
        """A directory for `restore`, as tar; `left_out` is a list of paths from there, a NUL behind each."""
        words = {"names": list(options.names), "maxBytes": options.max_bytes, "maxNames": options.max_names}
        call = self._link.program("archive.save", told(path, {"options": json.dumps(words)}), None)
        try:
            await call.write(left_out)
            await call.close_stdin()
        except BaseException:
            await call.kill()
            raise
        return RemotePack(call)

    async def restore(self, path: bytes) -> RemoteRestore:
        """What `save` gave as the whole of a directory."""
        return RemoteRestore(self._link.program("archive.restore", told(path, {}), _KEPT))

    async def watch(self, path: bytes, options: WatchOptions) -> RemoteWatch:
        """Events of a tree; returns once the watch is in place."""
        transfer = self._link.transfer("watch.follow", told(path, watches.words(options)))
        try:
            await transfer.head()
        except BaseException:
            await transfer.close()
            raise
        return RemoteWatch(self._link, transfer)

    async def changes(self, path: bytes, options: WatchOptions, since: str | None) -> ChangeReport:
        """What changed below a directory since a version."""
        body = await self._link.ask("watch.changes", told(path, {**watches.words(options), "since": since}))
        return self._link.checked(lambda: watches.report(body))
