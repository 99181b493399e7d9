"""Owns scripted snapshots: one sandbox's, in memory.

Used by the unit tests of the API. Invariant: it refuses what the real service refuses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kennel.wire.errors import error
from kennel.wire.results import DiffView, PathChange, SandboxView, SnapshotView


class FakeSnapshots:
    """Snapshots `bk1` and on; `view` gives the view of a sandbox by its path."""

    def __init__(self, view: Callable[[str], SandboxView]) -> None:
        self._view = view
        self.calls: list[tuple[str, Any]] = []
        self.found = {"bk1": self._made("bk1", "first")}

    @staticmethod
    def _made(id_: str, name: str | None, **more: Any) -> SnapshotView:
        created = "2026-01-01T00:00:00+00:00"
        fields: dict[str, Any] = {
            "id": id_, "name": name, "reason": "snapshot", "created_at": created, "expires_at": None, "size": 4096,
            "left_out": 0, "depth": 1,
        }  # fmt: skip
        return SnapshotView(**{**fields, **more})

    def add(self, id_: str, **more: Any) -> None:
        """Another one on the list, above the others."""
        self.found = {id_: self._made(id_, more.pop("name", None), **more), **self.found}

    def _one(self, id_: str) -> SnapshotView:
        if id_ not in self.found:
            raise error("SNAPSHOT_NOT_FOUND", "no such snapshot", admitted="no")
        return self.found[id_]

    async def take(self, who: Any, project: str, path: str, **words: Any) -> SnapshotView:
        self.calls.append(("take", words))
        return self._made("bk2", words["name"])

    async def list(self, project: str, path: str) -> list[SnapshotView]:
        return list(self.found.values())

    async def delete(self, who: Any, project: str, path: str, id_: str) -> None:
        self._one(id_)

    async def diff(self, project: str, path: str, id_: str, other: str | None) -> DiffView:
        self._one(id_)
        return DiffView(added=1, changed=0, removed=0, paths=[PathChange(path="a", change="added")], truncated=False)

    async def rollback(
        self, who: Any, project: str, path: str, id_: str | None = None, *, before: int | None = None
    ) -> SandboxView:
        if before is not None:
            self.calls.append(("before", before))
            return self._view(path)
        self._one(id_ or "")
        return self._view(path)

    async def fork(self, who: Any, project: str, path: str, new_path: str, **words: Any) -> SandboxView:
        self.calls.append(("fork", (new_path, words)))
        if words["snapshot_id"] is not None:
            self._one(words["snapshot_id"])
        return self._view(new_path)

    @asynccontextmanager
    async def export(self, project: str, path: str, id_: str) -> AsyncIterator[AsyncIterator[bytes]]:
        self._one(id_)

        async def pieces() -> AsyncIterator[bytes]:
            yield b"piece one,"
            yield b"piece two"

        yield pieces()

    async def take_in(
        self, who: Any, project: str, path: str, body: AsyncIterator[bytes], options: Any, request_id: str | None
    ) -> SandboxView:
        self.calls.append(("import", (path, b"".join([piece async for piece in body]), options)))
        return self._view(path)
