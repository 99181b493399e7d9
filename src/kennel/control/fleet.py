"""Owns the sandboxes that run: one door and at most one live connection each; waking them, and letting them go.

Called by sandboxes, pool and reconciler. Invariant: whoever holds a ticket has a running sandbox whose `started` is on
the log; whoever closed the door is alone with the sandbox; a container that ends by itself is recorded as lost; nothing
is kept of a sandbox that nobody works with and that has no container here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from weakref import WeakValueDictionary

from kennel.control import leftovers
from kennel.control.door import Door
from kennel.control.live import Live, dispose
from kennel.control.projection import Projections
from kennel.control.workspaces import Address, Woken, Workspaces
from kennel.domain import idle, leave_out, names
from kennel.domain.event import NewEvent, fact
from kennel.domain.principal import SYSTEM, Principal
from kennel.domain.sandbox import Projection, refusal
from kennel.ports.guest import OpenGuest
from kennel.ports.node import NodeLink
from kennel.wire.errors import KennelError, error

log = logging.getLogger("kennel.fleet")

READY_SECONDS = 20.0
"""How long a guest may take to greet; 0.02 s of CPU on a quiet machine."""


_ENDED = {"sleep": "requested", "kill": "killed"}
"""Why a container that is gone was stopped, by what was asked for before it went; otherwise it is lost."""


class Pet:
    """One sandbox in this process. `parked` is a container that runs though nobody woke the pet yet (warm pool).

    It joins `awake` while it has a container, so that it is not forgotten then.
    """

    def __init__(self, project: str, path: str, sandbox: str, awake: set[Pet]) -> None:
        self.project, self.path, self.sandbox = project, path, sandbox
        self.at = Address(project, path, sandbox)
        self.door = Door()
        self.keeping = asyncio.Lock()
        self._awake = awake
        self._live: Live | None = None
        self._parked: Live | None = None

    @property
    def live(self) -> Live | None:
        """The connection in use."""
        return self._live

    @live.setter
    def live(self, live: Live | None) -> None:
        self._live = live
        self._settle()

    @property
    def parked(self) -> Live | None:
        """The connection to a container from the warm pool, until the pet is woken."""
        return self._parked

    @parked.setter
    def parked(self, parked: Live | None) -> None:
        self._parked = parked
        self._settle()

    @property
    def awake(self) -> bool:
        """Whether a guest can be asked for something now."""
        return self._live is not None and self._live.usable

    def _settle(self) -> None:
        if self._live is None and self._parked is None:
            self._awake.discard(self)
        else:
            self._awake.add(self)


async def _nothing(_: Pet) -> None:
    return None


async def _no_words(_: Pet) -> dict[str, str]:
    return {}


def _ignore(_: Pet) -> None:
    return None


def _unheard(_: Pet, __: Live) -> None:
    return None


def _told(state: Projection, woken: Woken, who: Principal) -> list[NewEvent]:
    """What a wake says to the log."""
    told: list[NewEvent] = []
    if woken.ran and state.running:
        # It ended while nobody was watching: the log must not show one long run.
        told.append(fact(SYSTEM, "sandbox/stopped", {"reason": _ENDED.get(state.requested or "", "lost")}))
    if woken.ran or not state.running:
        told.append(fact(who, "sandbox/started", {} if woken.image is None else {"imageDigest": woken.image}))
    if woken.set_aside is not None:
        told.append(fact(SYSTEM, "sandbox/root-set-aside", {"madeOn": woken.set_aside, "imageDigest": woken.image}))
    if woken.restored:
        told.append(fact(who, "sandbox/workspace-restored", {"backupId": state.workspace.backup_id}))
    return told


class Fleet:
    """The sandboxes this process works with, by id."""

    def __init__(self, node: NodeLink, open_guest: OpenGuest, projections: Projections, workspaces: Workspaces) -> None:
        self.node = node
        self.workspaces = workspaces
        self._open_guest = open_guest
        self._projections = projections
        # Weak: a pet lives as long as somebody works with it, so there is never a second door to one sandbox.
        self._pets: WeakValueDictionary[str, Pet] = WeakValueDictionary()
        self._awake: set[Pet] = set()
        self._making: set[str] = set()
        self.on_wake: Callable[[Pet], Awaitable[None]] = _nothing
        """Before a pet that has a container is given out: whose it is must be known to the gateway by then."""
        self.planted: Callable[[Pet], Awaitable[dict[str, str]]] = _no_words
        """Variables that a pet's commands find at each start, under its own; asked before it is given out."""
        self.on_rest: Callable[[Pet], None] = _ignore
        self.on_adopted: Callable[[Pet, Live], None] = _unheard
        """After a container that ran already was taken over."""
        self._losses: set[asyncio.Task[None]] = set()

    def pet(self, project: str, path: str, sandbox: str) -> Pet:
        found = self._pets.get(sandbox)
        if found is None:
            found = self._pets[sandbox] = Pet(project, path, sandbox, self._awake)
        return found

    def find(self, sandbox: str) -> Pet | None:
        """The pet, if somebody works with it now or it has a container here."""
        return self._pets.get(sandbox)

    @contextmanager
    def making(self, sandbox: str) -> Iterator[None]:
        """Marks a sandbox whose claim is not on the log yet, or whose maker is at work."""
        self._making.add(sandbox)
        try:
            yield
        finally:
            self._making.discard(sandbox)

    def being_made(self, sandbox: str) -> bool:
        """Whether somebody in this process is making it."""
        return sandbox in self._making

    def awake(self) -> list[Pet]:
        """Every pet that has a container here."""
        return list(self._awake)

    @asynccontextmanager
    async def admitted(self, pet: Pet, who: Principal) -> AsyncIterator[Live]:
        """A ticket for one operation; wakes the pet if it sleeps, waits while somebody else closed the door."""
        while True:
            live = pet.live
            if live is not None and live.usable and not pet.door.closed:
                break
            try:
                await self.start(pet, who)
            except KennelError as failure:
                failure.admitted = "no"  # whatever the start came to: the operation has no ticket
                raise
        with pet.door.ticket():
            yield live

    @asynccontextmanager
    async def attended(self, pet: Pet, who: Principal) -> AsyncIterator[Live]:
        """As `admitted`, for what may stay open for days: the pet does not fall asleep, but a sleep that is asked for
        is not held up."""
        async with AsyncExitStack() as held:
            async with self.admitted(pet, who) as live:
                held.enter_context(pet.door.vigil())
            yield live

    def stand_watch(self, pet: Pet, live: Live) -> None:
        """Keeps the pet awake for as long as a process in it asks for that."""
        live.watch_wanted = True
        if live.watch is None:
            live.watch = asyncio.get_running_loop().create_task(self._watch(pet, live), name=f"watch {live.sandbox}")

    @staticmethod
    async def _watch(pet: Pet, live: Live) -> None:
        try:
            with pet.door.vigil():
                while live.watch_wanted:
                    live.watch_wanted = False
                    await live.guest.processes.awake()
        except KennelError as failure:
            log.debug("the watch over %s ended: %s", live.sandbox, failure)
        finally:
            live.watch = None

    async def start(self, pet: Pet, who: Principal) -> None:
        """Wakes the pet; nothing happens if it is awake."""
        async with pet.door.shut():
            if not pet.awake:
                await self._wake(pet, who)

    async def adopt(self, pet: Pet) -> None:
        """Takes over a container that runs and should; one that cannot be reached is stopped and recorded."""
        async with pet.door.shut():
            if pet.awake or not (await self._alive(pet)).running:
                return
            try:
                live = await self._reach(pet.sandbox)
            except KennelError as failure:
                if failure.code == "NODE_UNAVAILABLE":
                    raise
                log.warning("%s%s runs and cannot be reached: %s", pet.project, pet.path, failure)
                await self._end(pet)
            else:
                await self._take(pet, live)

    async def found_ended(self, pet: Pet) -> None:
        """Records the end of a container that is gone, and clears what it left; nothing if it runs after all."""
        async with pet.door.shut():
            if not pet.awake and (await self._alive(pet)).running:
                await self._end(pet)

    async def found_asleep(self, pet: Pet) -> None:
        """Takes down what is there of a sandbox that should not run."""
        async with pet.door.shut():
            if not pet.awake and pet.parked is None and not (await self._alive(pet)).running:
                await self.node.stop(pet.sandbox)

    async def _end(self, pet: Pet, *, oom_killed: bool = False) -> None:
        """Takes down what is left and says why it ended, as far as the log knows; the door is closed by the caller."""
        stale, pet.live = pet.live, None
        self.on_rest(pet)
        if stale is not None:
            await stale.release(error("SANDBOX_LOST", "the sandbox ended"))
        await self.node.stop(pet.sandbox)
        requested = (await self._alive(pet)).requested
        payload: dict[str, object] = {"reason": _ENDED.get(requested or "", "lost")}
        if oom_killed:
            payload["oomKilled"] = True
        log.info("%s%s ended: %s", pet.project, pet.path, payload["reason"])
        await self.record(pet, fact(SYSTEM, "sandbox/stopped", payload))

    async def _wake(self, pet: Pet, who: Principal) -> None:
        """Boots and connects; the door is closed by the caller."""
        state = await self._alive(pet)
        await self.let_go(pet, error("SANDBOX_LOST", "the connection to the guest was lost"), parked=False)
        hostname = names.name_of(pet.path).replace(".", "-")
        parked, pet.parked = pet.parked, None
        if parked is not None and parked.usable:
            await self._take(pet, parked, hostname, fact(who, "sandbox/started"))
            return
        woken, live = await self._up(pet, state, who, hostname)
        await self._take(pet, live, None, *_told(state, woken, who))

    async def _up(self, pet: Pet, state: Projection, who: Principal, hostname: str) -> tuple[Woken, Live]:
        """How a container runs now, and a connection to it.

        One that was running already may be dying: a killed PID 1 is reachable for some milliseconds more. It is stopped
        by then, so the second try starts it anew.
        """
        woken = await self._boot(pet, state, who, hostname)
        try:
            return woken, await self.connect(pet.sandbox)
        except KennelError as failure:
            if woken.ran or failure.code == "NODE_UNAVAILABLE":
                raise
        woken = await self._boot(pet, state, who, hostname)
        return woken, await self.connect(pet.sandbox)

    async def _boot(self, pet: Pet, state: Projection, who: Principal, hostname: str) -> Woken:
        try:
            return await self.workspaces.start(pet.at, state, who, hostname)
        except KennelError as failure:
            if failure.code != "SANDBOX_NOT_FOUND":
                raise
            # The name is taken and stays so: to callers this sandbox exists, and only its disk does not.
            why = "the sandbox's disk is not on this machine any more"
            raise error("SANDBOX_START_FAILED", why, admitted="no") from failure

    async def _take(self, pet: Pet, live: Live, hostname: str | None = None, *events: NewEvent) -> None:
        """Makes a connection the pet's own once its limits are on and its start is recorded."""
        try:
            await self.on_wake(pet)
            if env := await self.planted(pet):
                await live.guest.plant(env)
            await self.node.limit(pet.sandbox, hostname)
            if events:
                await self.record(pet, *events)
        except BaseException:
            # The container stays: the next wake, or the reconciler, finds it and asks the log what to do with it.
            await live.release(error("SANDBOX_START_FAILED", "the start was not recorded"))
            raise
        pet.live = live
        pet.door.touch()
        if not events:
            # It ran already: processes of before may ask to be kept awake for.
            self.stand_watch(pet, live)
            self.on_adopted(pet, live)

    async def replant(self, pet: Pet) -> None:
        """What is planted follows the variables of a pet that runs; one that is lost meanwhile gets it at its start."""
        live = pet.live
        if live is not None and live.usable:
            with suppress(KennelError):
                await live.guest.plant(await self.planted(pet))

    async def _alive(self, pet: Pet) -> Projection:
        state = await self._projections.get(pet.project, pet.path)
        refused = refusal(state)
        if refused is not None:
            raise refused
        return state

    async def connect(self, sandbox: str) -> Live:
        """A connection to the guest of a container that runs; what fails stops the container again."""
        try:
            return await self._reach(sandbox)
        except KennelError:
            await self.node.stop(sandbox)
            raise

    async def _reach(self, sandbox: str) -> Live:
        connection, pidfd = await self.node.connect(sandbox)
        try:
            guest = await self._open_guest(connection, READY_SECONDS)
        except BaseException:
            dispose(connection, pidfd)
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
                await self._end(pet, oom_killed=counters.oom_kills > live.oom_kills)
        except KennelError as failure:
            # The reconciler finds what could not be recorded now.
            log.warning("the loss of %s%s was not recorded: %s", pet.project, pet.path, failure)

    async def rest(
        self,
        pet: Pet,
        who: Principal,
        reason: str,
        *,
        drain: float = 0.0,
        only_idle: bool = False,
        keep: bool = False,
    ) -> bool:
        """Stops the container and records it; False when there was nothing to stop.

        Work in progress gets `drain` seconds, then ends with OPERATION_INTERRUPTED. `only_idle` looks again, behind
        the closed door, whether the pet is still idle. With `keep` its files are packed to the blob store.
        """
        async with pet.door.shut():
            state = await self._alive(pet)
            if only_idle and not self.idle(pet, state):
                return False
            if drain > 0:
                await pet.door.drained(drain)
            was_running = pet.live is not None or state.running
            if keep and was_running:
                await self._unmount(pet)
            out = await self._leftovers(pet, state) if keep and was_running else None
            await self.let_go(
                pet, error("OPERATION_INTERRUPTED", f"the sandbox was stopped ({reason})", admitted="yes")
            )
            await self.node.stop(pet.sandbox)
            if out is not None:
                await self.workspaces.rest(pet.at, who, reason, out)
            if was_running:
                await self.record(pet, fact(who, "sandbox/stopped", {"reason": reason}))
            return was_running

    async def _unmount(self, pet: Pet) -> None:
        """Takes out the buckets, or who lists what is left out would walk through a store, which may not answer."""
        try:
            await self.node.unmount_bucket(pet.sandbox, None, force=True)
        except KennelError as failure:
            log.info("buckets of %s%s go with its container: %s", pet.project, pet.path, failure)

    @staticmethod
    async def _leftovers(pet: Pet, state: Projection) -> leftovers.Leftovers:
        """What the pack after the stop leaves out, listed inside while the pet still runs."""
        guest = pet.live.guest if pet.awake and pet.live is not None else None
        return await leftovers.find(guest, leave_out.wanted(state.leave_out, state.persist), live=False)

    async def let_go(self, pet: Pet, reason: KennelError, *, parked: bool = True) -> None:
        """Releases whatever connection the pet has; the caller closed the door."""
        live, pet.live = pet.live, None
        self.on_rest(pet)
        if live is not None:
            await live.release(reason)
        if parked and pet.parked is not None:
            waiting, pet.parked = pet.parked, None
            await waiting.release(reason)

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
        busy = pet.door.tickets + pet.door.vigils
        return idle.expired(time.monotonic(), pet.door.last_activity, busy, limit, state.keep_alive)

    async def close(self) -> None:
        """Waits for losses that are being recorded."""
        if self._losses:
            await asyncio.gather(*self._losses, return_exceptions=True)
