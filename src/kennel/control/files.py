"""Owns what may be asked of a sandbox's files: each call admitted like a command, carried out by its guest.

Called by the API. Invariant: a transfer holds its ticket until its last byte, so that a sandbox never sleeps under it;
nothing here looks into a sandbox's disk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from kennel.control.live import Live
from kennel.domain.file import ChangeReport, FileFacts, WatchOptions, WriteOptions
from kennel.domain.principal import Principal
from kennel.domain.sandbox import Projection
from kennel.ports.files import Download, Listing, Pack, Unpack, Upload, Watch


class Admission(Protocol):
    """How a call gets at a running sandbox; control/sandboxes.py."""

    def guest(
        self, who: Principal, project: str, path: str
    ) -> AbstractAsyncContextManager[tuple[Live, Projection]]: ...


class Files:
    """Files of sandboxes; `box` is the sandbox's path, `path` the file's."""

    def __init__(self, sandboxes: Admission) -> None:
        self._sandboxes = sandboxes

    async def stat(
        self, who: Principal, project: str, box: str, path: bytes, *, follow: bool = True, user: str | None = None
    ) -> FileFacts:
        """What is there; wakes the sandbox if it sleeps, as everything here does."""
        async with self._sandboxes.guest(who, project, box) as (live, _):
            return await live.guest.files.stat(path, follow=follow, user=user)

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
        """A range of a file, for the length of the block; `start` below 0 counts from the end."""
        async with self._sandboxes.guest(who, project, box) as (live, _):
            download = await live.guest.files.read(path, start=start, count=count, user=user)
            try:
                yield download
            finally:
                await download.close()

    @asynccontextmanager
    async def write(
        self, who: Principal, project: str, box: str, path: bytes, options: WriteOptions
    ) -> AsyncIterator[Upload]:
        """A file in the making; leaving the block without `finish` leaves the old one."""
        async with self._sandboxes.guest(who, project, box) as (live, _):
            upload = await live.guest.files.write(path, options)
            try:
                yield upload
            finally:
                await upload.close()

    @asynccontextmanager
    async def list(self, who: Principal, project: str, box: str, path: bytes, **options: Any) -> AsyncIterator[Listing]:
        """A directory's entries; options as in ports.files."""
        async with self._sandboxes.guest(who, project, box) as (live, _):
            listing = await live.guest.files.list(path, **options)
            try:
                yield listing
            finally:
                await listing.close()

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
        """`mkdir`, `chmod`, `delete`, `move`, `copy` or `link`: where the outcome lies and what it is."""
        async with self._sandboxes.guest(who, project, box) as (live, _):
            return await live.guest.files.change(verb, path, options, user)

    @asynccontextmanager
    async def pack(
        self, who: Principal, project: str, box: str, path: bytes, *, gzip: bool = False, user: str | None = None
    ) -> AsyncIterator[Pack]:
        """A tree as tar, for the length of the block."""
        async with self._sandboxes.guest(who, project, box) as (live, _):
            pack = await live.guest.files.pack(path, gzip=gzip, user=user)
            try:
                yield pack
            finally:
                await pack.close()

    @asynccontextmanager
    async def unpack(
        self, who: Principal, project: str, box: str, path: bytes, *, user: str | None = None
    ) -> AsyncIterator[Unpack]:
        """A tar on its way into a directory; leaving the block without `finish` gives it up."""
        async with self._sandboxes.guest(who, project, box) as (live, _):
            unpack = await live.guest.files.unpack(path, user=user)
            try:
                yield unpack
            finally:
                await unpack.close()

    @asynccontextmanager
    async def watch(
        self, who: Principal, project: str, box: str, path: bytes, options: WatchOptions
    ) -> AsyncIterator[Watch]:
        """Events of a tree, for the length of the block; the watch is in place when it begins."""
        async with self._sandboxes.guest(who, project, box) as (live, _):
            watch = await live.guest.files.watch(path, options)
            try:
                yield watch
            finally:
                await watch.close()

    async def changes(
        self, who: Principal, project: str, box: str, path: bytes, options: WatchOptions, since: str | None
    ) -> ChangeReport:
        """What changed below a directory since a version that this gave before."""
        async with self._sandboxes.guest(who, project, box) as (live, _):
            return await live.guest.files.changes(path, options, since)
