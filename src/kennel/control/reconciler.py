"""Owns making the log and the machine agree: at the start, and every minute.

Called by assemble. Invariant: a sandbox's container, disk and record exist on the machine exactly when the log says
that it lives (a claim, or a birth without `destroyed`); what the log does not know is removed, what the log says runs
and does not is recorded as lost, a creation cut off is finished or given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from kennel.control.catalogue import Catalogue
from kennel.control.fleet import Fleet
from kennel.control.pool import Pool
from kennel.control.sandboxes import Sandboxes
from kennel.domain.claim import Claim
from kennel.domain.event import fact
from kennel.domain.principal import SYSTEM
from kennel.domain.sandbox import Projection
from kennel.wire.errors import KennelError
from kennel.wire.node import Unit

log = logging.getLogger("kennel.reconciler")

EVERY_SECONDS = 60.0
IDLE_SECONDS = 1.0
STARTING_SECONDS = 0.1
"""Between tries while node is still coming up."""


class Reconciler:
    """The loops that keep promises nobody is waiting for."""

    def __init__(
        self,
        projects: Callable[[], Awaitable[Sequence[str]]],
        catalogue: Catalogue,
        fleet: Fleet,
        pool: Pool,
        sandboxes: Sandboxes,
    ) -> None:
        self._projects = projects
        self._catalogue = catalogue
        self._fleet = fleet
        self._pool = pool
        self._sandboxes = sandboxes
        self._tasks: list[asyncio.Task[None]] = []
        self.settled = False

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._every(EVERY_SECONDS, self.agree), name="reconciler"),
            loop.create_task(self._every(IDLE_SECONDS, self.send_idle_to_sleep), name="idle timer"),
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except KennelError as failure:
                log.warning("%s: %s", work.__name__, failure)
            await asyncio.sleep(seconds if self.settled else STARTING_SECONDS)

    async def agree(self) -> None:
        """One pass over everything."""
        units = {unit.sandbox: unit for unit in await self._fleet.node.census()}
        known: set[str] = set()
        for project in await self._projects():
            for claim, state in await self._catalogue.list(project):
                known.add(claim.sandbox_id)
                try:
                    await self._settle(claim, state, units.get(claim.sandbox_id))
                except KennelError as failure:
                    log.warning("%s%s is not settled: %s", project, claim.path, failure)
        for sandbox in units.keys() - known:
            # Looked at again: a claim may have come, or the pool may have taken it, since the census.
            if sandbox not in self._pool.sandboxes and self._fleet.known(sandbox) is None:
                log.info("removing %s, which no claim names", sandbox)
                await self._fleet.node.remove(sandbox)
        self.settled = True

    async def _settle(self, claim: Claim, state: Projection, unit: Unit | None) -> None:
        pet = self._fleet.pet(claim.project, claim.path, claim.sandbox_id)
        if state.birth_certificate is None:
            if not pet.door.closed:
                await self._sandboxes.finish(SYSTEM, claim)
        elif state.status == "destroyed":
            if unit is not None:
                await self._fleet.node.remove(claim.sandbox_id)
            self._fleet.forget(pet)
        elif pet.live is None and not pet.door.closed:
            await self._settle_run(claim, unit)

    async def _settle_run(self, claim: Claim, unit: Unit | None) -> None:
        """A sandbox that this process does not hold: adopt it if it runs and should, else make both sides agree."""
        pet = self._fleet.pet(claim.project, claim.path, claim.sandbox_id)
        runs = unit is not None and unit.running
        state = await self._fleet.state(pet)
        if state.running and runs:
            await self._fleet.start(pet, SYSTEM)
        elif state.running:
            async with pet.door.shut():
                if pet.live is None and (await self._fleet.state(pet)).running:
                    await self._fleet.node.stop(claim.sandbox_id)
                    await self._fleet.record(pet, fact(SYSTEM, "sandbox/stopped", {"reason": "lost"}))
        elif runs and pet.parked is None:
            async with pet.door.shut():
                if pet.live is None and pet.parked is None:
                    await self._fleet.node.stop(claim.sandbox_id)

    async def send_idle_to_sleep(self) -> None:
        """Puts every pet to sleep whose time has run out."""
        due = []
        for pet in self._fleet.all():
            if pet.live is not None and not pet.door.closed and self._fleet.idle(pet, await self._fleet.state(pet)):
                due.append(self._fleet.rest(pet, SYSTEM, "idle", only_idle=True))
        for failure in await asyncio.gather(*due, return_exceptions=True):
            if isinstance(failure, BaseException):
                log.warning("an idle pet did not fall asleep: %s", failure)

    async def put_all_to_sleep(self) -> None:
        """At a clean end: every pet that runs is stopped and recorded."""
        gate = asyncio.Semaphore(8)

        async def one(project: str, path: str, sandbox: str) -> None:
            async with gate:
                await self._fleet.rest(self._fleet.pet(project, path, sandbox), SYSTEM, "shutdown", drain=1.0)

        pets = [pet for pet in self._fleet.all() if pet.live is not None]
        results = await asyncio.gather(*(one(p.project, p.path, p.sandbox) for p in pets), return_exceptions=True)
        for failure in results:
            if isinstance(failure, BaseException):
                log.warning("a pet did not fall asleep: %s", failure)
