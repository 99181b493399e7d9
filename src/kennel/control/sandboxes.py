"""Owns what may be asked of a sandbox: create, look, configure, start, sleep, restart, kill, destroy, run.

Called by the API and by rooms. Invariant: requests are on the log before the work, completions on the log and folded
before the call returns; looking never wakes, creates or extends a life.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from kennel.control.catalogue import Catalogue
from kennel.control.fleet import Fleet, Pet
from kennel.control.live import Live
from kennel.control.pool import Pool
from kennel.control.projection import Projections
from kennel.control.recorder import Recorder
from kennel.domain import creation, idle, names, raw_secret
from kennel.domain.claim import Claim
from kennel.domain.command import Command, Outcome
from kennel.domain.create_options import CreateOptions
from kennel.domain.event import fact
from kennel.domain.leave_out import checked as checked_leave_out
from kennel.domain.principal import Principal
from kennel.domain.sandbox import Projection, require_alive
from kennel.ports.guest import Guest
from kennel.wire.errors import KennelError, error
from kennel.wire.results import SandboxView

DRAIN_SECONDS = 10.0
"""What work in progress gets when somebody asks for sleep; idle expiry has nothing in progress."""

_FINAL = frozenset({"NO_CAPACITY", "IMAGE_NOT_FOUND", "ISOLATION_UNAVAILABLE", "VALIDATION_FAILED"})
"""Refusals after which a creation can never finish: its name is free again."""
_NO_CLAIM = frozenset({"SANDBOX_EXISTS", "SANDBOX_DESTROYED"})
"""Refusals of a claim that say for sure that nothing was written."""


async def _nobody(project: str, path: str) -> None:
    return None


def advised(view: SandboxView, env: Mapping[str, str | None]) -> SandboxView:
    """The answer with a warning for each variable that was given a secret's own value."""
    return msgspec.structs.replace(view, warnings=raw_secret.warnings(env))


class Sandboxes:
    """The lifecycle service; `before_command` is called, where a sandbox asks for points, before one is told of."""

    def __init__(
        self,
        catalogue: Catalogue,
        projections: Projections,
        fleet: Fleet,
        pool: Pool,
        recorder: Recorder,
        before_command: Callable[[Pet, Live], Awaitable[None]],
    ) -> None:
        self._catalogue = catalogue
        self._projections = projections
        self._fleet = fleet
        self._pool = pool
        self._recorder = recorder
        self._before_command = before_command
        self.on_destroyed: Callable[[str, str], Awaitable[None]] = _nobody

    async def create(
        self, who: Principal, project: str, path: str, options: CreateOptions, request_id: str | None
    ) -> SandboxView:
        """Claims the name and makes the sandbox, asleep; the same `request_id` resumes or gets the same answer.

        Raises SANDBOX_EXISTS, SANDBOX_DESTROYED, VALIDATION_FAILED; and IMAGE_NOT_FOUND, ISOLATION_UNAVAILABLE or
        NO_CAPACITY, after which the name is free again.
        """
        names.name_of(path)
        creation.check(options)
        digest = await self._fleet.node.resolve_image(options.image)
        waiting = self._pool.take(options, digest)
        sandbox = waiting.sandbox if waiting is not None else f"sb{secrets.token_hex(10)}"
        with self._fleet.making(sandbox):
            try:
                claim = await self._catalogue.claim(
                    who, project, path, options, request_id, sandbox, image_digest=digest
                )
            except BaseException as failure:
                await self._return(waiting, clean=isinstance(failure, KennelError) and failure.code in _NO_CLAIM)
                raise
            if claim.sandbox_id != sandbox:
                await self._return(waiting, clean=True)
                waiting = None
            return advised(await self.finish(who, claim, waiting), claim.options.env)

    async def _return(self, waiting: Live | None, *, clean: bool) -> None:
        """Back to the pool, unless a claim may have landed that names this container: then the reconciler decides."""
        if waiting is not None and clean:
            self._pool.give_back(waiting)
        elif waiting is not None:
            await waiting.release(error("OPERATION_INTERRUPTED", "the creation was cut off"))

    async def finish(self, who: Principal, claim: Claim, waiting: Live | None = None) -> SandboxView:
        """Makes the sandbox of a claim, wherever an earlier try was cut off; options are those of the claim."""
        pet = self._fleet.pet(claim.project, claim.path, claim.sandbox_id)
        async with pet.door.shut():
            if waiting is not None and pet.live is None:
                pet.parked = waiting
            elif waiting is not None:
                await waiting.release(error("OPERATION_INTERRUPTED", "the sandbox was woken before its creation ended"))
            state = await self._projections.get(claim.project, claim.path)
            if state.birth_certificate is None:
                await self._build(who, claim, pet)
                state = await self._fleet.record(pet, *creation.birth(who, claim))
            require_alive(state)
            return creation.view(claim, state)

    async def _build(self, who: Principal, claim: Claim, pet: Pet) -> None:
        """Makes the disk; when that can never be done the name is given up. Behind the closed door."""
        if not await self._catalogue.in_force(claim):
            raise error("RESOURCE_BUSY", "this creation was given up; ask again", admitted="no", retry_after_ms=100)
        if pet.parked is not None:
            return
        options = claim.options
        try:
            await self._fleet.node.build(claim.sandbox_id, options.instance_type, claim.image_digest, options.isolation)
        except KennelError as failure:
            if failure.code in _FINAL:
                await self._give_up(who, claim, failure)
            raise

    async def _give_up(self, who: Principal, claim: Claim, failure: KennelError) -> None:
        await self._fleet.node.remove(claim.sandbox_id)
        await self._catalogue.abandon(who, claim, failure.code, failure.message)

    async def get(self, project: str, path: str) -> SandboxView:
        """The sandbox as the log has it; SANDBOX_NOT_FOUND when it was never created."""
        claim = await self._catalogue.find(project, path)
        return creation.view(claim, await self._projections.get(project, path))

    async def list(
        self,
        project: str,
        *,
        status: str | None = None,
        label: dict[str, str | None] | None = None,
        include_destroyed: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[list[SandboxView], str | None]:
        """Claims joined with status, by path, after `cursor`; and the cursor of the next page, if there is one."""
        rows = []
        for claim, state in await self._catalogue.list(project):
            view = creation.view(claim, state)
            hidden = view.status == "destroyed" and not include_destroyed and status != "destroyed"
            if hidden or (status is not None and view.status != status) or not _labelled(view.labels, label):
                continue
            if cursor is None or view.path > cursor:
                rows.append(view)
        more = rows[limit - 1].path if len(rows) > limit else None
        return rows[:limit], more

    async def update(
        self,
        who: Principal,
        project: str,
        path: str,
        *,
        sleep_after: str | int | UnsetType | None = UNSET,
        keep_alive: bool | UnsetType = UNSET,
        labels: dict[str, str] | UnsetType = UNSET,
        leave_out: dict[str, Any] | UnsetType = UNSET,
        points: bool | UnsetType = UNSET,
    ) -> SandboxView:
        """Changes habits and labels; what is UNSET stays. `leave_out` replaces what was set before."""
        payload: dict[str, Any] = {}
        if sleep_after is not UNSET:
            idle.seconds(sleep_after)
            payload["sleepAfter"] = sleep_after
        if keep_alive is not UNSET:
            payload["keepAlive"] = keep_alive
        if labels is not UNSET:
            payload["labels"] = creation.check_labels(labels)
        if leave_out is not UNSET:
            payload["leaveOut"] = checked_leave_out(leave_out)
        if points is not UNSET:
            payload["points"] = points
        return await self._configure(who, project, path, payload)

    async def set_env(self, who: Principal, project: str, path: str, env: dict[str, str | None]) -> SandboxView:
        """Merges into the durable environment; None unsets."""
        return advised(await self._configure(who, project, path, {"env": creation.check_env(env)}), env)

    async def _configure(self, who: Principal, project: str, path: str, payload: dict[str, Any]) -> SandboxView:
        claim, pet, state = await self._alive(project, path)
        if payload:
            state = await self._fleet.record(pet, fact(who, "sandbox/configured", payload))
            if "env" in payload:
                await self._fleet.replant(pet)
        return creation.view(claim, state)

    async def start(self, who: Principal, project: str, path: str, *, empty: bool = False) -> SandboxView:
        """Boots now rather than at the first command; `empty`: without its files, which stay what they are."""
        claim, pet, state = await self._alive(project, path)
        if empty and (state.running or pet.live is not None):
            raise error("RESOURCE_BUSY", "it runs; put it to sleep first", admitted="no")
        await self._fleet.record(pet, fact(who, "sandbox/start-requested", {"empty": True} if empty else {}))
        await self._fleet.start(pet, who)
        return await self._view(claim)

    async def sleep(self, who: Principal, project: str, path: str) -> SandboxView:
        """Stops the container and packs its files. Work in progress gets DRAIN_SECONDS."""
        claim, pet, _ = await self._alive(project, path)
        await self._fleet.record(pet, fact(who, "sandbox/sleep-requested"))
        await self._fleet.rest(pet, who, "requested", drain=DRAIN_SECONDS, keep=True)
        return await self._view(claim)

    async def restart(self, who: Principal, project: str, path: str) -> SandboxView:
        """Sleep, then start."""
        await self.sleep(who, project, path)
        return await self.start(who, project, path)

    async def kill(self, who: Principal, project: str, path: str) -> SandboxView:
        """SIGKILL at once; the disk stays as it was that instant."""
        claim, pet, _ = await self._alive(project, path)
        await self._fleet.record(pet, fact(who, "sandbox/kill-requested"))
        await self._fleet.rest(pet, who, "killed")
        return await self._view(claim)

    async def renew(self, who: Principal, project: str, path: str) -> SandboxView:
        """Counts as activity: the idle timer starts over."""
        claim, pet, state = await self._alive(project, path)
        pet.door.touch()
        return creation.view(claim, state)

    async def destroy(self, who: Principal, project: str, path: str) -> None:
        """Tears the sandbox down for good and retires its name; a second destroy changes nothing."""
        claim = await self._catalogue.find(project, path)
        pet = self._fleet.pet(project, path, claim.sandbox_id)
        state = await self._projections.get(project, path)
        if state.status == "destroyed":
            return
        require_alive(state)
        if state.requested != "destroy":
            await self._fleet.record(pet, fact(who, "sandbox/destroy-requested"))
        async with pet.door.shut():
            state = await self._projections.get(project, path)
            if state.status == "destroyed":
                return
            was_running = pet.live is not None or state.running
            await self._fleet.let_go(pet, error("SANDBOX_DESTROYED", "the sandbox was destroyed", admitted="yes"))
            await self._fleet.node.remove(pet.sandbox)
            events = [fact(who, "sandbox/stopped", {"reason": "destroyed"})] if was_running else []
            await self._fleet.record(pet, *events, fact(who, "sandbox/destroyed"))
        await self.on_destroyed(project, path)

    async def exec(self, who: Principal, project: str, path: str, command: Command) -> tuple[Outcome, bool]:
        """Runs one command, waking the pet if it sleeps; the outcome, and whether memory ran out and killed in it."""
        _, pet, _ = await self._alive(project, path)
        note = creation.started(secrets.token_hex(8), command)
        async with self._fleet.admitted(pet, who) as live:
            state = await self._projections.get(project, path)
            if state.points:
                await self._before_command(pet, live)
            await self._recorder.note(project, path, fact(who, "sandbox/exec-started", note))
            finished: dict[str, Any] = {"execId": note["execId"], "error": "INTERRUPTED", "timedOut": False}
            try:
                # A session was opened with the durable map; given again it would hide what the shell exported since.
                env = command.env if command.session_id else {**state.env, **command.env}
                outcome = await live.guest.exec(replace(command, env=env))
                finished = creation.finished(note["execId"], outcome)
            except KennelError as failure:
                finished["error"] = failure.code
                raise
            finally:
                await self._recorder.note(project, path, fact(who, "sandbox/exec-finished", finished))
            return outcome, await self.ran_out_of_memory(live, outcome)

    async def point(self, project: str, path: str, live: Live) -> None:
        """Takes a point, if the sandbox asks for them, for a command that is about to be told to the log."""
        _, pet, state = await self._alive(project, path)
        if state.points:
            await self._before_command(pet, live)

    async def ran_out_of_memory(self, live: Live, outcome: Outcome) -> bool:
        """Whether a process of the sandbox was killed for want of memory since this was asked last."""
        if outcome.exit_code != 137 or outcome.timed_out:
            return False
        counters = await self._fleet.node.usage(live.sandbox)
        more, live.oom_kills = counters.oom_kills > live.oom_kills, counters.oom_kills
        return more

    async def open_session(
        self,
        who: Principal,
        project: str,
        path: str,
        session_id: str,
        *,
        cwd: str,
        env: dict[str, str],
        user: str | None,
        replace: bool = False,
    ) -> None:
        """Starts a persistent shell; `replace` gives it a successor when it exits (rooms)."""
        async with self.guest(who, project, path) as (live, state):
            merged = {**state.env, **env}
            await live.guest.open_session(session_id, cwd=cwd, env=merged, user=user, replace=replace)

    async def close_session(self, who: Principal, project: str, path: str, session_id: str) -> None:
        """Ends a shell and all it runs; SESSION_NOT_FOUND."""
        async with self.guest(who, project, path) as (live, _):
            await live.guest.close_session(session_id)

    async def list_sessions(self, who: Principal, project: str, path: str) -> Sequence[str]:
        """The shells that are open; none in a sandbox that sleeps, which this does not wake."""
        _, pet, _ = await self._alive(project, path)
        if pet.live is None or not pet.live.usable:
            return []
        return await pet.live.guest.list_sessions()

    async def session_state(
        self, who: Principal, project: str, path: str, session_id: str
    ) -> tuple[str, dict[str, str]]:
        """A shell's directory and exported variables after its last command; SESSION_NOT_FOUND, also when it sleeps."""
        _, pet, _ = await self._alive(project, path)
        if pet.live is None or not pet.live.usable:
            raise error("SESSION_NOT_FOUND", "the sandbox is not running")
        state = await pet.live.guest.session_state(session_id)
        return state["cwd"], state["env"]

    async def awake_guest(self, project: str, path: str) -> Guest | None:
        """The guest of a sandbox that runs; None when it sleeps. Wakes nothing."""
        _, pet, state = await self._alive(project, path)
        if not pet.awake and state.running:
            await self._fleet.adopt(pet)  # this process is younger than the container
        return pet.live.guest if pet.live is not None and pet.live.usable else None

    async def awake_id(self, project: str, path: str) -> str | None:
        """The id of a sandbox that runs, by which node knows it; None when it sleeps. Wakes nothing."""
        _, pet, state = await self._alive(project, path)
        return pet.sandbox if pet.awake or state.running else None

    @asynccontextmanager
    async def attended(self, who: Principal, project: str, path: str) -> AsyncIterator[Guest]:
        """A guest for what may stay open for days; see Fleet.attended."""
        _, pet, _ = await self._alive(project, path)
        async with self._fleet.attended(pet, who) as live:
            yield live.guest

    async def alive(self, project: str, path: str) -> None:
        """Raises unless the sandbox was created and not destroyed."""
        await self._alive(project, path)

    async def environment(self, project: str, path: str) -> dict[str, str]:
        """The durable variables."""
        return (await self._projections.get(project, path)).env

    def on_adopted(self, hear: Callable[[str, str, Live], None]) -> None:
        """`hear` learns of every container that ran before this process did."""
        self._fleet.on_adopted = lambda pet, live: hear(pet.project, pet.path, live)

    async def keep_awake(self, project: str, path: str) -> None:
        """A process asks for its sandbox to stay awake."""
        _, pet, _ = await self._alive(project, path)
        if pet.live is not None and pet.live.usable:
            self._fleet.stand_watch(pet, pet.live)

    async def note(self, who: Principal, project: str, path: str, type_: str, payload: dict[str, Any]) -> None:
        """Queues a fact for the sandbox's stream."""
        await self._recorder.note(project, path, fact(who, type_, payload))

    @asynccontextmanager
    async def guest(self, who: Principal, project: str, path: str) -> AsyncIterator[tuple[Live, Projection]]:
        _, pet, _ = await self._alive(project, path)
        async with self._fleet.admitted(pet, who) as live:
            yield live, await self._projections.get(project, path)

    async def _alive(self, project: str, path: str) -> tuple[Claim, Pet, Projection]:
        claim = await self._catalogue.find(project, path)
        state = await self._projections.get(project, path)
        birth = require_alive(state)
        if birth.sandbox_id != claim.sandbox_id:
            raise error("INTERNAL_ERROR", f"the claim and the birth of {path} name different sandboxes")
        return claim, self._fleet.pet(project, path, claim.sandbox_id), state

    async def _view(self, claim: Claim) -> SandboxView:
        return creation.view(claim, await self._projections.get(claim.project, claim.path))


def _labelled(labels: dict[str, str], wanted: dict[str, str | None] | None) -> bool:
    return all(key in labels and value in (None, labels[key]) for key, value in (wanted or {}).items())
