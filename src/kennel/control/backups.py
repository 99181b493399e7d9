"""Owns backups of directories: made, listed, put back, deleted.

Called by the API. Invariant: a backup of /workspace is a snapshot; one of another directory is an archive that the
guest made, stored under a name of its own and told to the log only when all of it is there; no call holds more than a
few pieces, lasts longer than SECONDS, or stores more than MAX_BYTES.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from kennel.control import leftovers
from kennel.control.history import known
from kennel.control.pipes import Pipe
from kennel.control.projection import Projections
from kennel.control.sandboxes import Sandboxes
from kennel.control.snapshots import Snapshots
from kennel.domain import backup, leave_out
from kennel.domain.backup import RESTORED, SAVED, WORKSPACE, Archive
from kennel.domain.event import fact
from kennel.domain.file import SaveOptions
from kennel.domain.principal import Principal
from kennel.ports.blobs import Blobs
from kennel.ports.event_log import EventLog
from kennel.ports.files import Unpack
from kennel.wire.errors import KennelError, error
from kennel.wire.results import BackupView, SnapshotView

log = logging.getLogger("kennel.backups")

SECONDS = 600.0
MAX_BYTES = 64 << 30
MAX_NAMES = 4_000_000


class Backups:
    """The service."""

    def __init__(
        self, sandboxes: Sandboxes, snapshots: Snapshots, projections: Projections, events: EventLog, blobs: Blobs
    ) -> None:
        self._sandboxes, self._snapshots, self._projections = sandboxes, snapshots, projections
        self._events, self._blobs = events, blobs
        self._undone: set[asyncio.Task[None]] = set()

    async def create(
        self,
        who: Principal,
        project: str,
        path: str,
        dir_: str,
        *,
        name: str | None = None,
        ttl_seconds: int | None = None,
        asked: dict[str, Any] | None = None,
    ) -> BackupView:
        """The directory as it is now. Wakes the sandbox unless it is /workspace. `asked`: what is left out."""
        where, name = backup.checked_dir(dir_), backup.checked_name(name)
        if where == WORKSPACE:
            taken = await self._snapshots.take(
                who, project, path, name=name, ttl_seconds=ttl_seconds, leave_out=asked or {}
            )
            return _of_snapshot(taken)
        state = await self._projections.get(project, path)
        words = leave_out.wanted(leave_out.checked({**state.leave_out, **(asked or {})}), state.persist)
        begun = time.monotonic()
        id_ = f"dk{secrets.token_hex(10)}"
        async with self._sandboxes.guest(who, project, path) as (live, _), _in_time():
            found = await leftovers.find(live.guest, words, live=False, root=where)
            options = SaveOptions(found.names, MAX_BYTES, MAX_NAMES)
            size = await self._store(f"{backup.FOLDER}/{id_}", live.guest.files.save, where, options, found.listing)
        payload: dict[str, Any] = {
            "backupId": id_,
            "dir": where,
            "bytes": size,
            "leftOut": found.listing.count(b"\0"),
            "leftOutBy": found.by,
            "durationMs": round((time.monotonic() - begun) * 1000, 3),
        }
        payload |= {word: value for word, value in (("name", name), ("ttlSeconds", ttl_seconds)) if value is not None}
        await self._projections.append_and_fold(project, path, [fact(who, SAVED, payload)])
        return _of_archive(await self._archive(project, path, id_))

    async def _store(self, blob: str, save: Any, where: str, options: SaveOptions, listing: bytes) -> int:
        """Brings what the guest packs to the store; its bytes. What is cut off is not kept."""
        packing = await save(where.encode(), options, listing)
        pipe, total = Pipe(partial(self._blobs.put, blob), reads=False), 0
        try:
            async for piece in packing:
                total += len(piece)
                if total > 2 * MAX_BYTES:
                    raise error("PACK_TOO_LARGE", f"the archive is larger than {MAX_BYTES} bytes", admitted="yes")
                await pipe.write(piece)
            await pipe.end()
        except BaseException:
            # The store sees an end that came too early, and keeps it; so it is deleted, whoever waits or does not.
            pipe.close()
            self._undo(blob, pipe)
            raise
        finally:
            await packing.close()
        return total

    def _undo(self, blob: str, pipe: Pipe) -> None:
        async def undo() -> None:
            await asyncio.gather(pipe.work, return_exceptions=True)
            try:
                await self._blobs.delete(blob)
            except KennelError as failure:
                log.info("blob %s is left to the collection: %s", blob, failure)

        task = asyncio.get_running_loop().create_task(undo(), name="undo backup")
        self._undone.add(task)
        task.add_done_callback(self._undone.discard)

    async def list(self, project: str, path: str) -> list[BackupView]:
        """Every backup, the newest first; wakes nothing."""
        snapshots = [_of_snapshot(each) for each in await self._snapshots.list(project, path) if _asked_for(each)]
        now = datetime.now(UTC)
        archives = (await book(self._events, project, path)).values()
        saved = [_of_archive(each) for each in archives if not each.expired(now)]
        return sorted(snapshots + saved, key=lambda each: each.created_at, reverse=True)

    async def delete(self, who: Principal, project: str, path: str, id_: str) -> None:
        """Takes a backup off the list, and its archive out of the store. BACKUP_NOT_FOUND."""
        await self._sandboxes.alive(project, path)
        archive = (await book(self._events, project, path)).get(id_)
        if archive is None:
            with _as_backup(id_):
                await self._snapshots.delete(who, project, path, id_)
            return
        event = fact(who, "sandbox/snapshot-deleted", {"backupId": id_})
        await self._projections.append_and_fold(project, path, [event])
        await self._blobs.delete(archive.blob)

    async def restore(self, who: Principal, project: str, path: str, id_: str, dir_: str | None = None) -> str:
        """Makes the backup's directory, or another one, what the backup holds and nothing else; which one it was."""
        await self._sandboxes.alive(project, path)
        archive = (await book(self._events, project, path)).get(id_)
        where = backup.checked_dir(dir_ if dir_ is not None else WORKSPACE if archive is None else archive.dir)
        if archive is None and where == WORKSPACE:
            with _as_backup(id_):
                await self._snapshots.rollback(who, project, path, id_)
            return where
        if archive is not None and archive.expired(datetime.now(UTC)):
            raise error("BACKUP_EXPIRED", f"backup {id_} expired at {archive.expires_at}", admitted="no")
        async with self._sandboxes.guest(who, project, path) as (live, _), _in_time():
            target = await live.guest.files.restore(where.encode())
            try:
                if archive is not None:
                    await self._fetch(archive, target)
                else:
                    with _as_backup(id_):
                        async with self._snapshots.tree(project, path, id_) as pieces:
                            await _send(pieces, target)
                await target.finish()
            finally:
                await target.close()
        await self._projections.append_and_fold(project, path, [fact(who, RESTORED, {"backupId": id_, "dir": where})])
        return where

    async def _fetch(self, archive: Archive, target: Unpack) -> None:
        pipe = Pipe(lambda far: self._blobs.get(archive.blob, far, 2 * MAX_BYTES), reads=True)
        try:
            await _send(pipe.pieces(), target)
        except KennelError as failure:
            if failure.code != "BLOB_NOT_FOUND":
                raise
            raise error("BACKUP_NOT_FOUND", f"the files of backup {archive.id} are gone", admitted="no") from failure
        finally:
            pipe.close()

    async def _archive(self, project: str, path: str, id_: str) -> Archive:
        return (await book(self._events, project, path))[id_]

    async def close(self) -> None:
        """Waits for what is being taken back."""
        await asyncio.gather(*self._undone, return_exceptions=True)


async def _send(pieces: AsyncIterator[bytes], target: Unpack) -> None:
    async for piece in pieces:
        await target.write(piece)


async def book(events: EventLog, project: str, path: str) -> dict[str, Archive]:
    """The saved directories of one sandbox, by its stream."""
    return backup.fold(await known(events, project, path, backup.TYPES))


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(SECONDS):
            yield
    except TimeoutError as late:
        if isinstance(late, KennelError):
            raise
        raise error("PACK_TIMEOUT", f"the work took more than {SECONDS:g} seconds", admitted="yes") from None


class _as_backup:
    """A snapshot that is not there is a backup that is not there."""

    def __init__(self, id_: str) -> None:
        self._id = id_

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, failure: BaseException | None, __: object) -> None:
        if isinstance(failure, KennelError) and failure.code == "SNAPSHOT_NOT_FOUND":
            raise error("BACKUP_NOT_FOUND", f"there is no backup {self._id!r}", admitted="no") from failure


def _asked_for(each: SnapshotView) -> bool:
    return each.reason == "snapshot"


def _of_snapshot(each: SnapshotView) -> BackupView:
    return BackupView(
        id=each.id, dir=WORKSPACE, name=each.name, created_at=each.created_at, expires_at=each.expires_at,
        size=each.size, left_out=each.left_out,
    )  # fmt: skip


def _of_archive(each: Archive) -> BackupView:
    return BackupView(
        id=each.id, dir=each.dir, name=each.name, created_at=each.created_at, expires_at=each.expires_at,
        size=each.size, left_out=each.left_out,
    )  # fmt: skip
