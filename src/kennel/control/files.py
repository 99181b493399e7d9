"""Owns what may be asked of a sandbox's files: each call admitted like a command, carried out by its guest.

Called by the API. Invariant: a transfer holds its ticket until its last byte, so that a sandbox never sleeps under it;
nothing here looks into a sandbox's disk. A glance holds no ticket, and wakes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

from kennel.control.live import Live
from kennel.domain.file import ChangeReport, Entry, FileFacts, WatchOptions, WriteOptions
from kennel.domain.principal import Principal
from kennel.domain.sandbox import Projection
from kennel.ports.files import Download, GuestFiles, Listing, Pack, Unpack, Upload, Watch
from kennel.ports.guest import Guest


class Held(Protocol):
    """Something open in a guest, which has an end."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=Held)


class Admission(Protocol):
    """How a call gets at a running sandbox; control/sandboxes.py."""

    def guest(
        self, who: Principal, project: str, path: str
    ) -> AbstractAsyncContextManager[tuple[Live, Projection]]: ...
    async def awake_guest(self, project: str, path: str) -> Guest | None: ...


class Files:
    """Files of sandboxes; `box` is the sandbox's path, `path` the file's."""

    def __init__(self, sandboxes: Admission) -> None:
        self._sandboxes = sandboxes

    @asynccontextmanager
    async def _held(
        self, who: Principal, project: str, box: str, begin: Callable[[GuestFiles], Awaitable[C]]
    ) -> AsyncIterator[C]:
        """What `begin` opened in the guest, with the ticket, until the block is left."""
        async with self._sandboxes.guest(who, project, box) as (live, _):
            held = await begin(live.guest.files)
            try:
                yield held
            finally:
                await held.close()

    async def stat(
        self, who: Principal, project: str, box: str, path: bytes, *, follow: bool = True, user: str | None = None
    ) -> FileFacts:
        """What is there; wakes the sandbox if it sleeps, as everything here does."""
        async with self._sandboxes.guest(who, project, box) as (live, _):
            return await live.guest.files.stat(path, follow=follow, user=user)

    def read(
        self,
        who: Principal,
        project: str,
        box: str,
        path: bytes,
        *,
        start: int = 0,
        count: int | None = None,
        user: str | None = None,
    ) -> AbstractAsyncContextManager[Download]:
        """A range of a file, for the length of the block; `start` below 0 counts from the end."""
        return self._held(who, project, box, lambda files: files.read(path, start=start, count=count, user=user))

    def write(
        self, who: Principal, project: str, box: str, path: bytes, options: WriteOptions
    ) -> AbstractAsyncContextManager[Upload]:
        """A file in the making; leaving the block without `finish` leaves the old one."""
        return self._held(who, project, box, lambda files: files.write(path, options))

    def list(
        self, who: Principal, project: str, box: str, path: bytes, **options: Any
    ) -> AbstractAsyncContextManager[Listing]:
        """A directory's entries; options as in ports.files."""
        return self._held(who, project, box, lambda files: files.list(path, **options))

    async def glance(self, project: str, box: str, path: bytes, most: int) -> tuple[Sequence[Entry], bool] | None:
        """A directory's first entries, and whether there are more; None for a sandbox that sleeps.

        For whoever looks by the way: it wakes nothing, keeps nothing awake, and ends when the sandbox falls asleep.
        """
        guest = await self._sandboxes.awake_guest(project, box)
        if guest is None:
            return None
        listing = await guest.files.list(path, hidden=True, limit=most)
        try:
            return [entry async for batch in listing for entry in batch], listing.more
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

    def pack(
        self, who: Principal, project: str, box: str, path: bytes, *, gzip: bool = False, user: str | None = None
    ) -> AbstractAsyncContextManager[Pack]:
        """A tree as tar, for the length of the block."""
        return self._held(who, project, box, lambda files: files.pack(path, gzip=gzip, user=user))

    def unpack(
        self, who: Principal, project: str, box: str, path: bytes, *, user: str | None = None
    ) -> AbstractAsyncContextManager[Unpack]:
        """A tar on its way into a directory; leaving the block without `finish` gives it up."""
        return self._held(who, project, box, lambda files: files.unpack(path, user=user))

    def watch(
        self, who: Principal, project: str, box: str, path: bytes, options: WatchOptions
    ) -> AbstractAsyncContextManager[Watch]:
        """Events of a tree, for the length of the block; the watch is in place when it begins."""
        return self._held(who, project, box, lambda files: files.watch(path, options))

    async def changes(
        self, who: Principal, project: str, box: str, path: bytes, options: WatchOptions, since: str | None
    ) -> ChangeReport:
        """What changed below a directory since a version that this gave before."""
        async with self._sandboxes.guest(who, project, box) as (live, _):
            return await live.guest.files.changes(path, options, since)
