"""Owns snapshots of a sandbox as programs use them: take, list, compare, roll back, fork, export.

Part of the sandbox's handle. Invariant: a snapshot is named by its id alone, so one from a list does as well as the one
that was just taken.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from kennel.sdk._async.transport import AsyncTransport
from kennel.sdk.leave_out import leave_out_words
from kennel.sdk.names import new_request_id
from kennel.wire.results import BackupRestored, BackupView, DiffView, SandboxView, SnapshotView

SECONDS = 600.0
WORKSPACE = "/workspace"


class AsyncSnapshotMethods:
    """The part of a sandbox's handle that is about snapshots."""

    _transport: AsyncTransport
    _route: str

    async def snapshot(
        self,
        name: str | None = None,
        *,
        ttl: int | None = None,
        node_modules: bool | None = None,
        gitignore: bool | None = None,
        excludes: Sequence[str] | None = None,
    ) -> SnapshotView:
        """The files of /workspace as they are now; `ttl` is in seconds, without it the snapshot lasts until deleted.

        `node_modules` and `gitignore` say whether those are left out; `excludes` are patterns of your own.
        """
        leave_out = leave_out_words({"node_modules": node_modules, "gitignore": gitignore, "patterns": excludes})
        asked = {"name": name, "ttl": ttl, "leaveOut": leave_out or None}
        body = {word: value for word, value in asked.items() if value is not None}
        return await self._transport.call("POST", f"{self._route}/snapshots", SnapshotView, body=body, extra=SECONDS)

    async def snapshots(self) -> list[SnapshotView]:
        """Every snapshot, the newest first."""
        found = await self._transport.call(
            "GET", f"{self._route}/snapshots", dict[str, list[SnapshotView]], repeat=True
        )
        return found["snapshots"]

    async def delete_snapshot(self, snapshot: SnapshotView | str) -> None:
        """Takes a snapshot off the list; the sandbox's files stay what they are."""
        await self._transport.call("DELETE", f"{self._route}/snapshots/{_id(snapshot)}", type(None))

    async def diff(self, snapshot: SnapshotView | str, other: SnapshotView | str | None = None) -> DiffView:
        """Which paths changed since `snapshot`, up to `other` or up to now."""
        query = None if other is None else {"with": _id(other)}
        route = f"{self._route}/snapshots/{_id(snapshot)}/diff"
        return await self._transport.call("GET", route, DiffView, query=query, extra=SECONDS)

    async def rollback(self, snapshot: SnapshotView | str | None = None, *, before: int | None = None) -> SandboxView:
        """Makes the files those of the snapshot; what runs ends, and a sandbox that ran runs again.

        `before`, instead of a snapshot, is the offset of a command's `sandbox/exec-started`: the files become those of
        the newest point taken before it, where `points` was on.
        """
        asked = {"snapshotId": None if snapshot is None else _id(snapshot), "before": before}
        body = {word: value for word, value in asked.items() if value is not None}
        return await self._transport.call("POST", f"{self._route}/rollback", SandboxView, body=body, extra=SECONDS)

    async def export_snapshot(self, snapshot: SnapshotView | str) -> AsyncIterator[bytes]:
        """The whole tree of a snapshot as a tar.zst, piece by piece."""
        route = f"{self._route}/snapshots/{_id(snapshot)}/export"
        reply = await self._transport.open(route, accept="application/zstd", query={}, headers={}, silence=SECONDS)
        try:
            while (piece := await reply.read()) is not None:
                yield piece
        finally:
            await reply.close()

    async def _fork(
        self,
        path: str,
        snapshot: SnapshotView | str | None,
        instance_type: str | None,
        secrets: bool,
        request_id: str | None,
    ) -> SandboxView:
        body: dict[str, Any] = {"path": path, "secrets": secrets}
        if instance_type is not None:
            body["instanceType"] = instance_type
        if snapshot is not None:
            body["snapshotId"] = _id(snapshot)
        name = request_id or new_request_id()
        return await self._transport.call(
            "POST", f"{self._route}/fork", SandboxView, body=body, request_id=name, extra=SECONDS
        )

    async def create_backup(
        self,
        dir: str = WORKSPACE,
        *,
        name: str | None = None,
        ttl: int | None = None,
        excludes: Sequence[str] | None = None,
        gitignore: bool | None = None,
    ) -> BackupView:
        """A backup of a directory: of /workspace a snapshot, of another one an archive made inside.

        `dir` is in /workspace, /home, /app, /tmp or /var/tmp. `ttl` is in seconds, without it the backup lasts until
        it is deleted; `excludes` are patterns of what is left out, `gitignore` whether what git ignores is.
        """
        words = {"dir": dir, "name": name, "ttl": ttl, "gitignore": gitignore, "excludes": excludes and list(excludes)}
        body = {word: value for word, value in words.items() if value is not None}
        return await self._transport.call("POST", f"{self._route}/backups", BackupView, body=body, extra=SECONDS)

    async def list_backups(self) -> list[BackupView]:
        """Every backup, the newest first; does not wake it."""
        found = await self._transport.call("GET", f"{self._route}/backups", dict[str, list[BackupView]], repeat=True)
        return found["backups"]

    async def restore_backup(self, backup: BackupView | str, *, dir: str | None = None) -> BackupRestored:
        """Makes the backup's directory, or `dir`, what the backup holds and nothing else.

        Of /workspace it is a roll back: what runs ends.
        """
        id_ = backup if isinstance(backup, str) else backup.id
        where = dir if dir is not None or isinstance(backup, str) else backup.dir
        body = {} if where is None else {"dir": where}
        route = f"{self._route}/backups/{id_}/restore"
        return await self._transport.call("POST", route, BackupRestored, body=body, extra=SECONDS)

    async def delete_backup(self, backup: BackupView | str) -> None:
        """Takes a backup off the list, and its archive out of the store."""
        id_ = backup if isinstance(backup, str) else backup.id
        await self._transport.call("DELETE", f"{self._route}/backups/{id_}", type(None))


def _id(snapshot: SnapshotView | str) -> str:
    return snapshot if isinstance(snapshot, str) else snapshot.id
