"""Owns the sandboxes that run: one door and at most one live connection each; waking them, and letting them go.

Called by sandboxes, pool and reconciler. Invariant: whoever holds a ticket has a running sandbox whose `started` is on
the log; whoever closed the door is alone with the sandbox; a container that ends by itself is recorded as lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from kennel.control.door import Door
from kennel.control.live import Live, dispose
from kennel.control.projection import Projections
from kennel.domain import idle, names
from kennel.domain.event import NewEvent, fact
from kennel.domain.principal import SYSTEM, Principal
from kennel.domain.sandbox import Projection, refusal
from kennel.ports.guest import OpenGuest
from kennel.ports.node import NodeLink
from kennel.wire.errors import KennelError, error

log = logging.getLogger("kennel.fleet")

READY_SECONDS = 20.0
"""How long a guest may take to greet; 0.02 s of CPU on a quiet machine."""


@dataclass(slots=True)
class Pet:
    """One sandbox in this process. `parked` is a container that runs though nobody woke the pet yet (warm pool)."""

    project: str
    path: str
    sandbox: str
    door: Door = field(default_factory=Door)
    live: Live | None = None
    parked: Live | None = None


class Fleet:
    """Every sandbox this process has touched, by id."""

    def __init__(self, node: NodeLink, open_guest: OpenGuest, projections: Projections) -> None:
        self.node = node
        self._open_guest = open_guest
        self._projections = projections
        self._pets: dict[str, Pet] = {}
        self._losses: set[asyncio.Task[None]] = set()

    def pet(self, project: str, path: str, sandbox: str) -> Pet:
        found = self._pets.get(sandbox)
        if found is None:
            found = self._pets[sandbox] = Pet(project, path, sandbox)
        return found

    def known(self, sandbox: str) -> Pet | None:
        return self._pets.get(sandbox)

    def all(self) -> list[Pet]:
        return list(self._pets.values())

    def forget(self, pet: Pet) -> None:
        """Drops a destroyed sandbox from memory."""
        self._pets.pop(pet.sandbox, None)

    @asynccontextmanager
    async def admitted(self, pet: Pet, who: Principal) -> AsyncIterator[Live]:
        """A ticket for one operation; wakes the pet if it sleeps, waits while somebody else closed the door."""
        while True:
            live = pet.live
            if live is not None and live.usable and not pet.door.closed:
                break
            async with pet.door.shut():
                if pet.live is None or not pet.live.usable:
                    await self._wake(pet, who)
        with pet.door.ticket():
            yield live

    async def start(self, pet: Pet, who: Principal) -> None:
        """Wakes the pet; nothing happens if it is awake."""
        async with pet.door.shut():
            if pet.live is None or not pet.live.usable:
                await self._wake(pet, who)

    async def _wake(self, pet: Pet, who: Principal) -> None:
        """Boots and connects; the door is closed by the caller."""
        state = await self._alive(pet)
        stale, pet.live = pet.live, None
        if stale is not None:
            await stale.release(error("SANDBOX_LOST", "the connection to the guest was lost"))
        hostname = names.name_of(pet.path).replace(".", "-")
        events = []
        parked, pet.parked = pet.parked, None
        if parked is not None and parked.usable:
            live = parked
            await self.node.limit(pet.sandbox, hostname)
        else:
            fresh = await self.node.start(pet.sandbox, hostname)
            live = await self.connect(pet.sandbox)
            await self.node.limit(pet.sandbox)
            if fresh and state.running:
                # It ended while nobody was watching: the log must not show one long run.
                events.append(fact(SYSTEM, "sandbox/stopped", {"reason": "lost"}))
        try:
            if events or not state.running:
                events.append(fact(who, "sandbox/started"))
                await self._projections.append_and_fold(pet.project, pet.path, events)
        except BaseException:
            await live.release(error("SANDBOX_START_FAILED", "the start was not recorded"))
            raise
        pet.live = live
        pet.door.touch()

    async def _alive(self, pet: Pet) -> Projection:
        state = await self._projections.get(pet.project, pet.path)
        refused = refusal(state)
        if refused is not None:
            raise refused
        return state

    async def connect(self, sandbox: str) -> Live:
        """A connection to the guest of a container that runs; what fails stops the container again."""
        try:
            connection, pidfd = await self.node.connect(sandbox)
            try:
                guest = await self._open_guest(connection, READY_SECONDS)
            except BaseException:
                dispose(connection, pidfd)
                raise
        except KennelError:
            await self.node.stop(sandbox)
            raise
        return Live(sandbox, guest, pidfd, self._lost)

    def _lost(self, live: Live) -> None:
        pet = self._pets.get(live.sandbox)
        if pet is None:
            return
        task = asyncio.get_running_loop().create_task(self._record_loss(pet, live), name=f"loss of {live.sandbox}")
        self._losses.add(task)
        task.add_done_callback(self._losses.discard)

    async def _record_loss(self, pet: Pet, live: Live) -> None:
        try:
            async with pet.door.shut():
                if pet.parked is live:
                    pet.parked = None
                    await self.node.stop(pet.sandbox)
                if pet.live is not live:
                    return
                counters = await self.node.usage(pet.sandbox)
                pet.live = None
                await self.node.stop(pet.sandbox)
                payload: dict[str, object] = {"reason": "lost"}
                if counters.oom_kills > live.oom_kills:
                    payload["oomKilled"] = True
                await self.record(pet, fact(SYSTEM, "sandbox/stopped", payload))
        except KennelError as failure:
            # The reconciler finds what could not be recorded now.
            log.warning("the loss of %s%s was not recorded: %s", pet.project, pet.path, failure)

    async def rest(self, pet: Pet, who: Principal, reason: str, *, drain: float = 0.0, only_idle: bool = False) -> bool:
        """Stops the container and records it; False when there was nothing to stop.

        Work in progress gets `drain` seconds, then ends with OPERATION_INTERRUPTED. `only_idle` looks again, behind
        the closed door, whether the pet is still idle.
        """
        async with pet.door.shut():
            state = await self._alive(pet)
            if only_idle and not self.idle(pet, state):
                return False
            if drain > 0:
                await pet.door.drained(drain)
            was_running = pet.live is not None or state.running
            await self.let_go(
                pet, error("OPERATION_INTERRUPTED", f"the sandbox was stopped ({reason})", admitted="yes")
            )
            await self.node.stop(pet.sandbox)
            if was_running:
                await self.record(pet, fact(who, "sandbox/stopped", {"reason": reason}))
            return was_running

    async def let_go(self, pet: Pet, reason: KennelError) -> None:
        """Releases whatever connection the pet has; the caller closed the door and ends the container next."""
        for live in (pet.live, pet.parked):
            if live is not None:
                await live.release(reason)
        pet.live = pet.parked = None

    async def state(self, pet: Pet) -> Projection:
        """The pet's projection."""
        return await self._projections.get(pet.project, pet.path)

    async def record(self, pet: Pet, *events: NewEvent) -> Projection:
        """Appends to the pet's stream and folds."""
        return await self._projections.append_and_fold(pet.project, pet.path, events)

    @staticmethod
    def idle(pet: Pet, state: Projection) -> bool:
        """Whether the idle timer may put this pet to sleep now."""
        if pet.live is None:
            return False
        limit = idle.seconds(state.sleep_after)
        return idle.expired(time.monotonic(), pet.door.last_activity, pet.door.tickets, limit, state.keep_alive)

    async def close(self) -> None:
        """Waits for losses that are being recorded."""
        if self._losses:
            await asyncio.gather(*self._losses, return_exceptions=True)
