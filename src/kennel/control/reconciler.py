"""Owns making the log and the machine agree: at the start, every minute, and when node was away.

Called by assemble. Invariant: a sandbox's container, disk and record exist on the machine exactly when the log says
that it lives (a claim, or a birth without `destroyed`); what the log does not know is removed, what the log says runs
and does not is recorded as ended, a creation or a destruction cut off is finished. It never boots a sandbox, and leaves
alone whatever somebody else in this process is at work on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

from kennel.control.catalogue import Catalogue
from kennel.control.fleet import Fleet, Pet
from kennel.control.pool import Pool
from kennel.control.sandboxes import Sandboxes
from kennel.domain.claim import Claim
from kennel.domain.principal import SYSTEM
from kennel.domain.sandbox import Projection
from kennel.wire.errors import KennelError
from kennel.wire.node import Unit

log = logging.getLogger("kennel.reconciler")

EVERY_SECONDS = 60.0
IDLE_SECONDS = 1.0
AGAIN_SECONDS = 0.1
"""Between tries while node is not there."""
PATIENCE_SECONDS = 15.0
"""After which Kennel counts as serving though some sandbox is not settled: a hostile guest may stall its own."""
AT_ONCE = 16

Work = Coroutine[None, None, object]


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
        self._called = asyncio.Event()
        self._places = asyncio.Semaphore(AT_ONCE)
        self.settled = False

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._every(EVERY_SECONDS, self.agree, self._called), name="reconciler"),
            loop.create_task(self._every(IDLE_SECONDS, self.send_idle_to_sleep, asyncio.Event()), name="idle timer"),
        ]

    def hurry(self) -> None:
        """Asks for a pass now rather than within a minute: node went away and left work half done."""
        self._called.set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]], called: asyncio.Event) -> None:
        told = ""
        while True:
            pause = seconds
            called.clear()
            try:
                await work()
                told = ""
            except KennelError as failure:
                pause = min(seconds, AGAIN_SECONDS)
                if str(failure) != told:
                    log.warning("%s: %s", work.__name__, failure)
                told = str(failure)
            except Exception:  # a promise kept late is better than a loop that has ended
                log.exception("%s failed", work.__name__)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await called.wait()

    async def agree(self) -> None:
        """One pass over everything; what fails for one sandbox is logged and left to the next pass."""
        units = {unit.sandbox: unit for unit in await self._fleet.node.census()}
        patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._settle_for_now)
        try:
            known: set[str] = set()
            work: list[Work] = []
            for project in await self._projects():
                for claim, state in await self._catalogue.list(project):
                    known.add(claim.sandbox_id)
                    work += self._unsettled(claim, state, units.get(claim.sandbox_id))
            await asyncio.gather(*work)
            await self._remove_strangers(units.keys() - known)
        finally:
            patience.cancel()
        self.settled = True

    def _settle_for_now(self) -> None:
        self.settled = True

    def _unsettled(self, claim: Claim, state: Projection, unit: Unit | None) -> Iterator[Work]:
        """What there is to do about one claim; nothing while somebody else is at work on it."""
        pet = self._fleet.find(claim.sandbox_id)
        if self._fleet.being_made(claim.sandbox_id) or (pet is not None and pet.door.closed):
            return
        if state.birth_certificate is None:
            yield self._do("finishing the creation of", claim, lambda _: self._sandboxes.finish(SYSTEM, claim))
        elif state.status == "destroyed":
            if unit is not None:
                yield self._do("removing the remains of", claim, lambda p: self._fleet.node.remove(p.sandbox))
        elif state.requested == "destroy":
            destroy = self._sandboxes.destroy
            yield self._do("finishing the end of", claim, lambda p: destroy(SYSTEM, p.project, p.path))
        elif pet is None or not (pet.awake or pet.parked is not None):
            yield from self._astray(claim, state, unit)

    def _astray(self, claim: Claim, state: Projection, unit: Unit | None) -> Iterator[Work]:
        """A sandbox that this process has no connection to, and what to do where log and machine disagree."""
        runs = unit is not None and unit.running
        if not self.settled and (unit is None or not unit.record):
            log.error("the disk of %s%s (%s) is gone", claim.project, claim.path, claim.sandbox_id)
        if state.running and runs:
            yield self._do("taking over", claim, self._fleet.adopt)
        elif state.running:
            yield self._do("recording the end of", claim, self._fleet.found_ended)
        elif unit is not None and not unit.at_rest():
            yield self._do("taking down", claim, self._fleet.found_asleep)

    async def _do(self, what: str, claim: Claim, work: Callable[[Pet], Awaitable[object]]) -> None:
        where = f"{claim.project}{claim.path} ({claim.sandbox_id})"
        pet = self._fleet.pet(claim.project, claim.path, claim.sandbox_id)
        async with self._places:
            log.info("%s %s", what, where)
            try:
                await work(pet)
            except KennelError as failure:
                log.warning("%s %s failed: %s", what, where, failure)
            except Exception:  # the others must be settled all the same
                log.exception("%s %s failed", what, where)

    async def _remove_strangers(self, strangers: set[str]) -> None:
        """Removes what no claim names, once it is sure that none does."""
        strangers -= self._pool.sandboxes
        if strangers:
            for project in await self._projects():
                await self._catalogue.refresh(project)
                strangers -= {claim.sandbox_id for claim in await self._catalogue.claims(project)}
        for sandbox in strangers:
            if self._fleet.being_made(sandbox) or self._fleet.find(sandbox) is not None:
                continue
            log.info("removing %s, which no claim names", sandbox)
            try:
                await self._fleet.node.remove(sandbox)
            except KennelError as failure:
                log.warning("removing %s failed: %s", sandbox, failure)

    async def send_idle_to_sleep(self) -> None:
        """Puts every pet to sleep whose time has run out."""
        due = []
        for pet in self._fleet.awake():
            if pet.live is not None and not pet.door.closed and self._fleet.idle(pet, await self._fleet.state(pet)):
                log.info("%s%s has been idle and goes to sleep", pet.project, pet.path)
                due.append(self._fleet.rest(pet, SYSTEM, "idle", only_idle=True, keep=True))
        for failure in await asyncio.gather(*due, return_exceptions=True):
            if isinstance(failure, BaseException):
                log.warning("an idle pet did not fall asleep: %s", failure)

    async def put_all_to_sleep(self) -> None:
        """At a clean end: every pet that runs is stopped and recorded."""
        gate = asyncio.Semaphore(8)

        async def one(pet: Pet) -> None:
            async with gate:
                await self._fleet.rest(pet, SYSTEM, "shutdown", drain=1.0)

        pets = [pet for pet in self._fleet.awake() if pet.live is not None]
        results = await asyncio.gather(*(one(pet) for pet in pets), return_exceptions=True)
        for failure in results:
            if isinstance(failure, BaseException):
                log.warning("a pet did not fall asleep: %s", failure)
