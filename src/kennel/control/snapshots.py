"""Owns snapshots as people use them: take, list, delete, compare, roll back, fork, export, import.

Called by the API. Invariant: ids and layers resolve inside the caller's sandbox only; a roll back moves the
pointer only to layers that are here and verified; nothing that was uploaded is ever mounted: an import is unpacked
inside a sandbox.
"""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from kennel.control import leftovers
from kennel.control.catalogue import Catalogue
from kennel.control.fleet import Fleet, Pet
from kennel.control.history import known
from kennel.control.pipes import Pipe
from kennel.control.progress import Say, in_silence
from kennel.control.projection import Projections
from kennel.control.sandboxes import Sandboxes
from kennel.control.workspaces import Asked
from kennel.domain import creation, names, snapshot
from kennel.domain import leave_out as leave_out_
from kennel.domain.claim import Claim
from kennel.domain.create_options import CreateOptions
from kennel.domain.event import fact
from kennel.domain.principal import Principal
from kennel.domain.sandbox import Projection, require_alive
from kennel.domain.snapshot import Snapshot
from kennel.ports.blobs import Blobs
from kennel.ports.event_log import EventLog
from kennel.wire.errors import KennelError, error
from kennel.wire.node import Compare
from kennel.wire.results import DiffView, PathChange, SandboxView, SnapshotView

MAX_PATHS = 10_000
MAX_NAME = 256
MAX_IMPORT = 64 << 30
WORKSPACE = b"/workspace"
_WORDS = {"A": "added", "C": "changed", "R": "removed"}


class Snapshots:
    """The service."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        catalogue: Catalogue,
        projections: Projections,
        fleet: Fleet,
        log: EventLog,
        blobs: Blobs,
    ) -> None:
        self._sandboxes, self._catalogue, self._projections = sandboxes, catalogue, projections
        self._fleet, self._log, self._blobs = fleet, log, blobs

    async def take(
        self,
        who: Principal,
        project: str,
        path: str,
        *,
        name: str | None = None,
        ttl_seconds: int | None = None,
        leave_out: dict[str, Any] | None = None,
    ) -> SnapshotView:
        """The sandbox's files as they are now; one that runs stands still a moment, one that sleeps sleeps on."""
        if name is not None and not 0 < len(name) <= MAX_NAME:
            raise _invalid("name", f"1 to {MAX_NAME} characters")
        _, pet, state = await self._find(project, path)
        asked = leave_out_.checked({**state.leave_out, **(leave_out or {})})
        taken = await self._keep(who, pet, asked, Asked("snapshot", name, ttl_seconds))
        return _view(taken, taken.parent, ())

    async def _keep(self, who: Principal, pet: Pet, leave_out: dict[str, Any], asked: Asked) -> Snapshot:
        kept = await self._pack(who, pet, leave_out, asked)
        return await self._one(pet.project, pet.path, kept.workspace.backup_id or "")

    async def _pack(self, who: Principal, pet: Pet, leave_out: dict[str, Any], asked: Asked) -> Projection:
        state = await self._fleet.state(pet)
        words = leave_out_.wanted(leave_out, state.persist)
        async with pet.keeping:
            if state.running or pet.awake:
                async with self._fleet.admitted(pet, who) as live:
                    found = await leftovers.find(live.guest, words, live=True)
                    return await self._fleet.workspaces.keep(pet.at, who, replace(asked, leftovers=found), live=True)
            async with pet.door.shut():
                found = await leftovers.find(None, words, live=False)
                return await self._fleet.workspaces.keep(pet.at, who, replace(asked, leftovers=found), live=False)

    async def list(self, project: str, path: str) -> list[SnapshotView]:
        """Every snapshot, the newest first."""
        await self._find(project, path)
        now = datetime.now(UTC)
        kept = await self._book(project, path)
        found = {id_: each for id_, each in kept.items() if not each.expired(now)}
        forks = await _forks(self._catalogue, self._projections, project, path)

        def listed(id_: str | None) -> str | None:
            while id_ is not None and id_ not in found:
                id_ = kept[id_].parent
            return id_

        return [_view(each, listed(each.parent), forks.get(each.id, ())) for each in reversed(found.values())]

    async def delete(self, who: Principal, project: str, path: str, id_: str) -> None:
        """Takes a snapshot off the list; the sandbox's files stay what they are. SNAPSHOT_NOT_FOUND."""
        _, pet, _ = await self._find(project, path)
        await self._one(project, path, id_)
        await self._fleet.record(pet, fact(who, "sandbox/snapshot-deleted", {"backupId": id_}))

    async def diff(self, project: str, path: str, id_: str, other: str | None) -> DiffView:
        """What changed since the snapshot, up to another one or up to now; at most MAX_PATHS paths are named."""
        _, pet, state = await self._find(project, path)
        old = await self._one(project, path, id_)
        new = state.workspace.layers if other is None else (await self._one(project, path, other)).layers
        await self._fleet.workspaces.ensure([*old.layers, *new])
        words = Compare(list(old.layers), list(new), pet.sandbox if other is None else None)
        counts, listing = await self._fleet.node.compare(words)
        try:
            paths = await asyncio.to_thread(_changes, listing)
        finally:
            os.close(listing)
        total = counts.added + counts.changed + counts.removed
        return DiffView(
            added=counts.added,
            changed=counts.changed,
            removed=counts.removed,
            paths=paths,
            truncated=total > len(paths),
        )

    async def rollback(
        self, who: Principal, project: str, path: str, id_: str | None = None, *, before: int | None = None
    ) -> SandboxView:
        """Makes the sandbox's files those of the snapshot. What runs ends; a sandbox that ran runs again afterwards.

        `before`, instead of an id: the newest point taken before the command whose `exec-started` is at that offset.
        """
        claim, pet, _ = await self._find(project, path)
        if before is not None:
            wanted = await self._before(project, path, before)
        else:
            wanted = await self._one(project, path, id_ or "")
        await self._here(wanted, self._fleet.workspaces.sayer(pet.at, who))
        await self._fleet.workspaces.require_room(wanted.stacks, claim.options.instance_type)
        payload: dict[str, Any] = {"backupId": wanted.id, **wanted.words()}
        async with pet.door.shut():
            state = await self._fleet.state(pet)
            require_alive(state)
            was_running = pet.live is not None or state.running
            await self._fleet.let_go(pet, error("OPERATION_INTERRUPTED", "the sandbox is rolled back", admitted="yes"))
            await self._fleet.node.stop(pet.sandbox)
            if was_running:
                await self._fleet.record(pet, fact(who, "sandbox/stopped", {"reason": "rollback"}))
            state = await self._fleet.state(pet)
            await self._fleet.workspaces.move(pet.at, state, who, "sandbox/rolled-back", payload)
        if was_running:
            await self._fleet.start(pet, who)
        return await self._sandboxes.get(project, path)

    async def _before(self, project: str, path: str, offset: int) -> Snapshot:
        """The point for a command; VALIDATION_FAILED where none began, SNAPSHOT_NOT_FOUND where there is no point."""
        events = await self._log.read(project, path, after=offset - 1, limit=1)
        if [(each.offset, each.type) for each in events] != [(offset, "sandbox/exec-started")]:
            raise _invalid("before", f"no command of {path} began at offset {offset}")
        found = snapshot.point_before((await self._book(project, path)).values(), offset)
        if found is None:
            raise error(
                "SNAPSHOT_NOT_FOUND",
                f"{path} has no point from before offset {offset}",
                hint=f'points are taken while "points" is true; the last {snapshot.KEPT_POINTS} are kept',
                admitted="no",
            )
        return found

    async def _here(self, wanted: Snapshot, say: Say = in_silence) -> None:
        """Brings a snapshot's layers to this machine, and those of a point to the store: a pointer may move there."""
        layers = [layer for stack in wanted.stacks for layer in stack]
        await self._fleet.workspaces.ensure(layers, say)
        if wanted.reason == snapshot.POINT:
            await self._fleet.workspaces.upload(layers)

    async def fork(
        self,
        who: Principal,
        project: str,
        path: str,
        new_path: str,
        *,
        snapshot_id: str | None = None,
        instance_type: str | None = None,
        keep_secrets: bool = False,
        request_id: str | None = None,
    ) -> SandboxView:
        """A new sandbox with the files of this one, as they are now or as a snapshot has them, perhaps of another type.

        Its environment is this one's, without values that name a secret unless `keep_secrets`.
        """
        names.name_of(new_path)
        claim, pet, state = await self._find(project, path)
        options = _options(claim, state, keep_secrets)
        if instance_type is not None:
            options = replace(options, instance_type=instance_type)
            creation.check(options)
        if snapshot_id is None:
            base = await self._keep(who, pet, state.leave_out, Asked("fork"))
        else:
            base = await self._one(project, path, snapshot_id)
        await self._here(base)
        await self._fleet.workspaces.require_room(base.stacks, options.instance_type)
        origin: dict[str, Any] = {
            "backupId": f"bk{secrets.token_hex(10)}",
            "reason": "fork",
            "origin": {"path": path, "backupId": base.id},
            **base.words(),
        }
        return await self._sandboxes.create(who, project, new_path, replace(options, origin=origin), request_id)

    @asynccontextmanager
    async def export(self, project: str, path: str, id_: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The whole tree of a snapshot as a tar.zst, piece by piece; one that was cut off has no end."""
        async with self.tree(project, path, id_) as pieces:
            yield self._blobs.squeezed(pieces)

    @asynccontextmanager
    async def tree(self, project: str, path: str, id_: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """As `export`, not compressed; the pieces end with the failure of what was cut off."""
        await self._find(project, path)
        layers = (await self._one(project, path, id_)).layers
        await self._fleet.workspaces.ensure(layers)
        pipe = Pipe(partial(self._fleet.node.export, layers), reads=True)
        try:
            yield pipe.pieces()
        finally:
            pipe.close()

    async def take_in(self, who: Principal, project: str, path: str, body: AsyncIterator[bytes], options: CreateOptions,
                      request_id: str | None) -> SandboxView:  # fmt: skip
        """A new sandbox with the files of an exported tree, which is unpacked inside it."""
        await self._sandboxes.create(who, project, path, options, request_id)
        async with self._sandboxes.guest(who, project, path) as (live, _):
            unpack = await live.guest.files.restore(WORKSPACE)
            try:
                async for data in self._blobs.unsqueezed(body, MAX_IMPORT):
                    await unpack.write(data)
                await unpack.finish()
            finally:
                await unpack.close()
        return await self._sandboxes.get(project, path)

    async def _find(self, project: str, path: str) -> tuple[Claim, Pet, Projection]:
        claim = await self._catalogue.find(project, path)
        state = await self._projections.get(project, path)
        require_alive(state)
        return claim, self._fleet.pet(project, path, claim.sandbox_id), state

    async def _one(self, project: str, path: str, id_: str) -> Snapshot:
        found = (await self._book(project, path)).get(id_)
        if found is None or found.expired(datetime.now(UTC)):
            raise error("SNAPSHOT_NOT_FOUND", f"{path} has no snapshot {id_!r}", admitted="no")
        return found

    async def _book(self, project: str, path: str) -> dict[str, Snapshot]:
        return await book(self._log, project, path)


async def book(log: EventLog, project: str, path: str) -> dict[str, Snapshot]:
    """The snapshots of one sandbox, by its stream."""
    return snapshot.fold(await known(log, project, path, snapshot.TYPES))


async def _forks(catalogue: Catalogue, projections: Projections, project: str, path: str) -> dict[str, list[str]]:
    """The living sandboxes that began as a snapshot of this one, by the snapshot's id."""
    found: dict[str, list[str]] = {}
    for claim in await catalogue.claims(project):
        origin = (claim.options.origin or {}).get("origin") or {}
        if origin.get("path") != path or origin.get("backupId") is None:
            continue
        if (await projections.get(project, claim.path)).status != "destroyed":
            found.setdefault(origin["backupId"], []).append(claim.path)
    return found


def _options(claim: Claim, state: Projection, keep_secrets: bool) -> CreateOptions:
    env = {name: value for name, value in state.env.items() if keep_secrets or "getSecret(" not in value}
    return replace(
        claim.options,
        image=claim.image_digest if state.persist == "disk" else claim.options.image,
        env=dict(env),
        sleep_after=state.sleep_after,
        keep_alive=state.keep_alive,
        labels=state.labels,
        leave_out=state.leave_out,
        points=state.points,
    )


def _changes(listing: int) -> list[PathChange]:
    """The first MAX_PATHS rows of a comparison."""
    found: list[PathChange] = []
    with open(listing, "rb", closefd=False) as stream:
        rest = b""
        while len(found) < MAX_PATHS and (piece := stream.read(1 << 18)):
            *rows, rest = (rest + piece).split(b"\0")
            found += [_change(row) for row in rows[: MAX_PATHS - len(found)]]
    return found


def _change(row: bytes) -> PathChange:
    path, kind = row[1:], _WORDS[row[:1].decode()]
    text = path.decode(errors="replace")
    exact = text.encode() == path
    return PathChange(path=text, change=kind, path_base64=None if exact else base64.b64encode(path).decode())


def _view(each: Snapshot, parent: str | None, forks: Sequence[str]) -> SnapshotView:
    return SnapshotView(
        id=each.id, name=each.name, reason=each.reason, created_at=each.created_at, expires_at=each.expires_at,
        size=each.size, left_out=each.left_out, depth=len(each.layers), parent=parent, forks=list(forks),
        offset=each.offset,
    )  # fmt: skip


def _invalid(where: str, message: str) -> KennelError:
    return error("VALIDATION_FAILED", "invalid request", details={where: [message]}, admitted="no")
