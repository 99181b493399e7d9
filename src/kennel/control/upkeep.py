"""Owns what is done for files that nobody waits for: checkpoints, merging deep stacks, expiry, collecting layers.

Made by assemble. Invariant: it never wakes a sandbox nor extends its life; a layer is deleted only if two looks, a
grace time apart, found that no sandbox, snapshot, upper or fork needs it and nobody asked for it meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from kennel.control import leftovers
from kennel.control.backups import book as archives
from kennel.control.catalogue import Catalogue
from kennel.control.fleet import Fleet, Pet
from kennel.control.snapshots import book
from kennel.control.workspaces import FOLDER, Asked, blob_name
from kennel.domain import backup, leave_out
from kennel.domain.principal import SYSTEM
from kennel.domain.stack import Suspect, collect, referenced
from kennel.ports.blobs import Blobs
from kennel.ports.event_log import EventLog
from kennel.wire.errors import KennelError

log = logging.getLogger("kennel.upkeep")

EVERY_SECONDS = 30.0
OLD = 1e12
"""The age, in seconds, of a layer that only a machine's cache has: it is not waited for, but looked at twice."""


class Upkeep:
    """The loops, over every project of the installation."""

    def __init__(
        self,
        projects: Callable[[], Awaitable[Sequence[str]]],
        catalogue: Catalogue,
        fleet: Fleet,
        events: EventLog,
        blobs: Blobs,
        checkpoint_every: float,
        grace: float = 3600.0,
    ) -> None:
        self._projects, self._catalogue, self._fleet = projects, catalogue, fleet
        self._events, self._blobs, self._checkpoint_every, self._grace = events, blobs, checkpoint_every, grace
        self._saved: dict[str, float] = {}
        self._suspects: list[Suspect] = []
        self._unkept: list[Suspect] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._every(EVERY_SECONDS, self.checkpoint), name="checkpoints"),
            loop.create_task(self._every(EVERY_SECONDS, self.tidy), name="compaction"),
            loop.create_task(self._every(self._grace, self.collect), name="collection"),
            loop.create_task(self._every(self._grace, self.collect_archives), name="collection of archives"),
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _every(self, seconds: float, work: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except KennelError as failure:
                log.warning("%s: %s", work.__name__, failure)
            except Exception:  # a promise kept late is better than a loop that has ended
                log.exception("%s failed", work.__name__)

    async def checkpoint(self) -> None:
        """Backs up every sandbox that was used since its last backup, once its interval is over."""
        now = time.monotonic()
        awake = [pet for pet in self._fleet.awake() if pet.live is not None]
        self._saved = {pet.sandbox: self._saved.get(pet.sandbox, now) for pet in awake}
        for pet in awake:
            saved = self._saved[pet.sandbox]
            if now - saved >= self._checkpoint_every and pet.door.last_activity > saved:
                self._saved[pet.sandbox] = now
                with contextlib.suppress(KennelError):  # it is on the stream as `backup-failed`
                    await self._save(pet)

    async def _save(self, pet: Pet) -> None:
        async with pet.keeping:
            # No ticket: it must neither count as use nor hold up a sleep, which ends the pack instead.
            live, state = pet.live, await self._fleet.state(pet)
            if live is None or not live.usable or pet.door.closed or state.workspace.empty:
                return
            found = await leftovers.find(live.guest, leave_out.wanted(state.leave_out, state.persist), live=True)
            await self._fleet.workspaces.keep(pet.at, SYSTEM, Asked("checkpoint", leftovers=found), live=True)

    async def tidy(self) -> None:
        """Merges the stacks of sleeping sandboxes that weigh too much or are too deep; empties what aged out."""
        sizes = (await self._fleet.node.list_layers()).sizes
        for project in await self._projects():
            for claim, state in await self._catalogue.list(project):
                if state.running or state.status in (None, "destroyed"):
                    continue
                deep = self._fleet.workspaces.merge_wanted(state, sizes)
                if not deep and not self._fleet.workspaces.aged(state):
                    continue
                pet = self._fleet.pet(project, claim.path, claim.sandbox_id)
                if deep:
                    await self._fleet.workspaces.compact(pet.at)
                    continue
                async with pet.door.shut():
                    await self._fleet.workspaces.expire(pet.at, await self._fleet.state(pet))

    async def collect(self) -> list[str]:
        """One look at every stored layer; deletes those that an earlier look found unneeded too. What was deleted."""
        now, begun = time.time(), time.monotonic()
        ages = {
            info.name.removeprefix(f"{FOLDER}/"): max(0.0, now - info.modified)
            async for info in self._blobs.list(FOLDER)
        }
        here = await self._fleet.node.list_layers()
        for layer in here.sizes:
            ages.setdefault(layer, OLD)
        for layer, asked in self._fleet.workspaces.asked_for.items():
            if layer in ages:
                ages[layer] = min(ages[layer], time.monotonic() - asked)
        needed = referenced(await self._needed(), here.held)
        gone, self._suspects = collect(ages, needed, self._suspects, now, self._grace)
        asked_for = self._fleet.workspaces.asked_for
        for layer in gone:
            if asked_for.get(layer, 0.0) >= begun:
                continue  # somebody began to use it since this look
            await self._blobs.delete(blob_name(layer))
            if layer in here.sizes:
                await self._fleet.node.remove_layer(layer)
        if gone:
            log.info("%d layers that nobody needs are deleted", len(gone))
        return gone

    async def collect_archives(self) -> list[str]:
        """As `collect`, of saved directories: those of destroyed sandboxes, and those whose time is over."""
        now, moment = time.time(), datetime.now(UTC)
        ages = {info.name: max(0.0, now - info.modified) async for info in self._blobs.list(backup.FOLDER)}
        needed: set[str] = set()
        for project in await self._projects() if ages else ():
            await self._catalogue.refresh(project)
            for claim, state in await self._catalogue.list(project):
                if state.status != "destroyed":
                    found = (await archives(self._events, project, claim.path)).values()
                    needed |= {each.blob for each in found if not each.expired(moment)}
        gone, self._unkept = collect(ages, needed, self._unkept, now, self._grace)
        for name in gone:
            await self._blobs.delete(name)
        return gone

    async def _needed(self) -> list[Sequence[str]]:
        needed: list[Sequence[str]] = []
        for project in await self._projects():
            await self._catalogue.refresh(project)
            for claim, state in await self._catalogue.list(project):
                if state.status == "destroyed":
                    continue
                needed += state.workspace.stacks
                origin = claim.options.origin or {}
                needed += [origin[word] for word in ("layers", "root", "usr") if word in origin]
                for each in (await book(self._events, project, claim.path)).values():
                    needed += each.stacks
        return needed
