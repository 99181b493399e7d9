"""What control needs from a guest for files: facts, bytes both ways, changes of trees; `relay` provides it.

Paths are bytes, absolute, already checked; every failure is a KennelError that says whether the work was admitted.
Invariant: neither direction holds more than a window of bytes, however slow the other side is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from kennel.domain.file import ChangeReport, Entry, FileFacts, SaveOptions, WatchEvent, WatchOptions, WriteOptions


class Download(Protocol):
    """A file on its way out: `start` and `count` say which bytes come (`count` None: until the end, unknown).

    Iterate it to its end, or `close` it. Failing in the middle raises from the iteration.
    """

    facts: FileFacts
    start: int
    count: int | None

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    async def close(self) -> None: ...


class Upload(Protocol):
    """A file on its way in: `write` returns when the bytes are under way, `finish` when the file is in its place.

    `close` without `finish` leaves the old file; after either it does nothing.
    """

    async def write(self, data: bytes) -> None: ...
    async def finish(self) -> tuple[FileFacts, bool]: ...
    async def close(self) -> None: ...


class Listing(Protocol):
    """Entries in batches; `more` and `unreadable` count once it has ended."""

    more: bool
    unreadable: int

    def __aiter__(self) -> AsyncIterator[Sequence[Entry]]: ...
    async def close(self) -> None: ...


class Pack(Protocol):
    """A tree on its way out as tar; iterate it to its end, or `close` it. Failing raises from the iteration."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    async def close(self) -> None: ...


class Unpack(Protocol):
    """A tar on its way in; `finish` returns when all of it is unpacked, `close` gives it up."""

    async def write(self, data: bytes) -> None: ...
    async def finish(self) -> None: ...
    async def close(self) -> None: ...


class Watch(Protocol):
    """Events of a tree, in place when it was given out; `reason` says why it ended, if it did."""

    reason: str

    def __aiter__(self) -> AsyncIterator[Sequence[WatchEvent]]: ...
    async def close(self) -> None: ...


class GuestFiles(Protocol):
    """The files of one running sandbox."""

    async def stat(self, path: bytes, *, follow: bool = True, user: str | None = None) -> FileFacts: ...
    async def read(
        self, path: bytes, *, start: int = 0, count: int | None = None, user: str | None = None
    ) -> Download: ...
    async def write(self, path: bytes, options: WriteOptions) -> Upload: ...
    async def list(
        self,
        path: bytes,
        *,
        recursive: bool = False,
        hidden: bool = False,
        limit: int | None = None,
        after: bytes | None = None,
        user: str | None = None,
    ) -> Listing: ...
    async def change(
        self, verb: str, path: bytes, options: dict[str, Any], user: str | None = None
    ) -> tuple[bytes, FileFacts | None]:
        """`mkdir`, `chmod`, `delete`, `move`, `copy`, `link`: where the outcome lies and what it is."""

    async def pack(self, path: bytes, *, gzip: bool = False, user: str | None = None) -> Pack: ...
    async def unpack(self, path: bytes, *, user: str | None = None) -> Unpack: ...
    async def save(self, path: bytes, options: SaveOptions, left_out: bytes) -> Pack: ...
    async def restore(self, path: bytes) -> Unpack: ...
    async def watch(self, path: bytes, options: WatchOptions) -> Watch: ...
    async def changes(self, path: bytes, options: WatchOptions, since: str | None) -> ChangeReport: ...
