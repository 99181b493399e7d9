"""Owns a scripted stand-in for backups, for tests of the API alone: it has made one."""

from __future__ import annotations

from typing import Any

from kennel.wire.errors import error
from kennel.wire.results import BackupView

BACKUP = BackupView(
    id="bk00000000000000000000", dir="/opt/tools", name=None, created_at="2026-01-01T00:00:00.000Z", expires_at=None,
    size=1000, left_out=0,
)  # fmt: skip


class FakeBackups:
    """Knows BACKUP and none other."""

    async def create(self, who: Any, project: str, path: str, dir_: str, **options: Any) -> BackupView:
        return BACKUP

    async def list(self, project: str, path: str) -> list[BackupView]:
        return [BACKUP]

    async def delete(self, who: Any, project: str, path: str, id_: str) -> None:
        self._known(id_)

    async def restore(self, who: Any, project: str, path: str, id_: str, dir_: str | None = None) -> str:
        self._known(id_)
        return dir_ or BACKUP.dir

    def _known(self, id_: str) -> None:
        if id_ != BACKUP.id:
            raise error("BACKUP_NOT_FOUND", "there is no such backup")
