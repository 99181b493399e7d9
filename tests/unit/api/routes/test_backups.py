"""The routes of backups over a scripted service."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kennel.wire.errors import error
from kennel.wire.results import BackupView

pytestmark = pytest.mark.anyio
MAIN = "/v1/projects/default/sandboxes/main/backups"


class Service:
    """Notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    async def create(self, who: Any, project: str, path: str, dir_: str, **words: Any) -> BackupView:
        self.calls.append((dir_, words))
        created = "2026-01-01T00:00:00+00:00"
        return BackupView(
            id="dk1", dir=dir_, name=words["name"], created_at=created, expires_at=None, size=1, left_out=0
        )

    async def list(self, project: str, path: str) -> list[BackupView]:
        return []

    async def delete(self, who: Any, project: str, path: str, id_: str) -> None:
        raise error("BACKUP_NOT_FOUND", "none")

    async def restore(self, who: Any, project: str, path: str, id_: str, dir_: str | None = None) -> str:
        self.calls.append((id_, dir_))
        return dir_ or "/workspace"


async def test_backups_are_made_listed_put_back_and_deleted(world: Any) -> None:
    service = Service()
    world.app.state.services = replace(world.app.state.services, backups=service)
    async with world.client() as http:
        made = await http.post(MAIN, json={"dir": "/home/x", "excludes": ["*.o"], "gitignore": True, "ttl": 5})
        assert (made.status_code, made.json()["dir"]) == (201, "/home/x")
        asked = {"gitignore": True, "patterns": ["*.o"]}
        assert service.calls == [("/home/x", {"name": None, "ttl_seconds": 5, "asked": asked})]
        assert (await http.post(MAIN)).json()["dir"] == "/workspace"
        assert (await http.get(MAIN)).json() == {"backups": []}
        put = await http.post(f"{MAIN}/dk1/restore", json={"dir": "/tmp/y"})
        assert put.json() == {"success": True, "dir": "/tmp/y", "id": "dk1"}
        gone = await http.delete(f"{MAIN}/dk1")
        assert (gone.status_code, gone.json()["code"]) == (404, "BACKUP_NOT_FOUND")
        for bad in ({"dir": ""}, {"ttl": 0}, {"name": ""}, {"excludes": [""]}, {"compression": "lz4"}):
            assert (await http.post(MAIN, json=bad)).status_code == 400, bad


async def test_only_keepers_may(world: Any) -> None:
    async with world.client("runner") as http:
        assert (await http.post(MAIN)).status_code == 403
