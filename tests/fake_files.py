"""Owns files and git of a sandbox that is none: what the API's tests put behind its routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from kennel.domain.file import ChangeReport, Entry, FileFacts, WatchEvent, WatchOptions, WriteOptions
from kennel.domain.principal import Principal
from kennel.wire.errors import KennelError, error

DAY = 86_400 * 1_000_000_000


def facts(kind: str = "file", size: int | None = 0, **more: Any) -> FileFacts:
    """A plausible file."""
    numbers = {"mode": 0o644, "uid": 0, "gid": 0, "mtime_ns": DAY, "ctime_ns": DAY, "inode": 7, "links": 1}
    return FileFacts(kind, size, **{**numbers, **more})  # type: ignore[arg-type]


class Pieces:
    """Iterates what it was given; a failure among it is raised."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)
        self.closed = False
        self.reason = "deleted"

    async def __aiter__(self) -> AsyncIterator[Any]:
        for part in self.parts:
            if isinstance(part, KennelError):
                raise part
            yield part

    async def close(self) -> None:
        self.closed = True


class Download(Pieces):
    def __init__(self, parts: Sequence[Any], found: FileFacts, start: int, count: int | None) -> None:
        super().__init__(parts)
        self.facts, self.start, self.count = found, start, count


class Listing(Pieces):
    def __init__(self, entries: list[Entry], more: bool) -> None:
        super().__init__([entries])
        self.more, self.unreadable = more, 0


@dataclass
class Upload:
    files: FakeFiles
    path: bytes
    options: WriteOptions
    data: bytearray = field(default_factory=bytearray)
    closed: bool = False

    async def write(self, data: bytes) -> None:
        if self.files.full is not None and len(self.data) + len(data) > self.files.full:
            raise error("NO_SPACE", "full", details={"errno": "ENOSPC"}, admitted="yes")
        self.data += data

    async def finish(self) -> tuple[FileFacts, bool]:
        created = self.path not in self.files.content
        self.files.content[self.path] = bytes(self.data)
        return facts(size=len(self.data)), created

    async def close(self) -> None:
        self.closed = True


@dataclass
class FakeFiles:
    """A flat file system: `content` by path, `folders` beside it; `full` is the bytes that one write may have."""

    content: dict[bytes, bytes] = field(default_factory=dict)
    folders: set[bytes] = field(default_factory=lambda: {b"/", b"/workspace"})
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    uploads: list[Upload] = field(default_factory=list)
    downloads: list[Pieces] = field(default_factory=list)
    full: int | None = None
    broken_after: int | None = None
    asleep: set[str] = field(default_factory=set)

    def _look(self, path: bytes) -> FileFacts:
        if path in self.folders or path.rstrip(b"/") in self.folders:
            return facts("directory", 4096)
        if path not in self.content:
            raise error("FILE_NOT_FOUND", "no such file", details={"errno": "ENOENT"}, admitted="no")
        return facts(size=len(self.content[path]))

    async def stat(
        self, who: Principal, project: str, box: str, path: bytes, *, follow: bool = True, user: str | None = None
    ) -> FileFacts:
        self.calls.append(("stat", box, path, follow, user))
        return self._look(path)

    @asynccontextmanager
    async def read(
        self,
        who: Principal,
        project: str,
        box: str,
        path: bytes,
        *,
        start: int = 0,
        count: int | None = None,
        user: str | None = None,
    ) -> AsyncIterator[Download]:
        self.calls.append(("read", box, path, start, count, user))
        found = self._look(path)
        if found.type == "directory":
            raise error("IS_DIRECTORY", "a directory", details={"errno": "EISDIR"}, admitted="no")
        data = self.content[path]
        start = max(0, len(data) + start) if start < 0 else start
        data = data[start:] if count is None else data[start : start + count]
        parts: list[Any] = [data[at : at + 1000] for at in range(0, len(data), 1000)]
        if self.broken_after is not None:
            parts = [*parts[: self.broken_after], error("SANDBOX_LOST", "gone", admitted="yes")]
        download = Download(parts, found, start, len(data))
        self.downloads.append(download)
        yield download

    @asynccontextmanager
    async def write(
        self, who: Principal, project: str, box: str, path: bytes, options: WriteOptions
    ) -> AsyncIterator[Upload]:
        self.calls.append(("write", box, path, options))
        upload = Upload(self, path, options)
        self.uploads.append(upload)
        try:
            yield upload
        finally:
            await upload.close()

    @asynccontextmanager
    async def list(self, who: Principal, project: str, box: str, path: bytes, **options: Any) -> AsyncIterator[Listing]:
        self.calls.append(("list", box, path, options))
        if self._look(path).type != "directory":
            raise error("NOT_DIRECTORY", "no directory", details={"errno": "ENOTDIR"}, admitted="no")
        names = sorted(
            name.rpartition(b"/")[2] for name in self.content if name.rpartition(b"/")[0] == path.rstrip(b"/")
        )
        after, limit = options.get("after"), options.get("limit")
        names = [name for name in names if after is None or name > after]
        kept = names if limit is None else names[:limit]
        yield Listing([Entry(name, facts()) for name in kept], len(kept) < len(names))

    async def glance(self, project: str, box: str, path: bytes, most: int) -> tuple[Sequence[Entry], bool] | None:
        if box in self.asleep:
            return None
        async with self.list(Principal("key_g", None, frozenset()), project, box, path, limit=most) as listing:
            return [entry async for batch in listing for entry in batch], listing.more

    async def change(
        self,
        who: Principal,
        project: str,
        box: str,
        verb: str,
        path: bytes,
        options: dict[str, Any],
        user: str | None = None,
    ) -> tuple[bytes, FileFacts | None]:
        self.calls.append((verb, box, path, options, user))
        if verb == "delete":
            self._look(path)
            self.content.pop(path, None)
            return path, None
        return options.get("to", path), facts("directory" if verb == "mkdir" else "file")

    @asynccontextmanager
    async def pack(
        self, who: Principal, project: str, box: str, path: bytes, *, gzip: bool = False, user: str | None = None
    ) -> AsyncIterator[Pieces]:
        self._look(path)
        yield Pieces([b"tar", b"ball"])

    @asynccontextmanager
    async def unpack(
        self, who: Principal, project: str, box: str, path: bytes, *, user: str | None = None
    ) -> AsyncIterator[Upload]:
        yield Upload(self, path, WriteOptions())

    @asynccontextmanager
    async def watch(
        self, who: Principal, project: str, box: str, path: bytes, options: WatchOptions
    ) -> AsyncIterator[Pieces]:
        self.calls.append(("watch", path, options))
        self._look(path)
        yield Pieces([[WatchEvent("create", b"/workspace/a\xff", False, 1000)]])

    async def changes(
        self, who: Principal, project: str, box: str, path: bytes, options: WatchOptions, since: str | None
    ) -> ChangeReport:
        self.calls.append(("changes", path, options, since))
        if since is None:
            return ChangeReport("unchanged", "ab:0", ())
        return ChangeReport("changed", "ab:1", (b"/workspace/a",))


class FakeGit:
    """Every command works, and is noted."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failure: KennelError | None = None

    def __getattr__(self, verb: str) -> Any:
        if verb.startswith("_"):
            raise AttributeError(verb)

        async def run(place: Any, *words: Any, **more: Any) -> dict[str, Any]:
            self.calls.append((verb, place, *words, more))
            if self.failure is not None:
                raise self.failure
            return {"success": True}

        return run
