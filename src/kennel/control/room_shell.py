"""Owns a room's commands: which sandbox the room has now, made on first use, and its one shell session.

Called by rooms (direct commands) and turns (a model's). Invariants: a room's stream decides its sandbox, so any number
of control processes agree on one, and it names only sandboxes that the room itself made; a command that was asked for
before a cleanup never runs after it; commands of one room run in the order they came.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from kennel.control.room_book import Room, RoomBook, busy
from kennel.domain import room, turn
from kennel.domain.command import DEFAULT_CWD, Command, Outcome
from kennel.domain.create_options import CreateOptions
from kennel.domain.event import fact
from kennel.domain.principal import Principal
from kennel.domain.room import Shell
from kennel.wire.errors import KennelError, error
from kennel.wire.results import SandboxView

logger = logging.getLogger("kennel.rooms")

MAX_ATTEMPTS = 16
"""Turns of look, decide, act before a contended room answers RESOURCE_BUSY."""
OPTIONS = CreateOptions(persist="disk")
"""A room's sandbox: installed packages last for the room's life, so the whole disk is kept."""

SHOWN = 500
"""Characters of a command or a failure that watchers are shown."""
GONE = ("SANDBOX_DESTROYED", "SANDBOX_NOT_FOUND")
CONFIGURED = "sandbox/configured"


@dataclass(slots=True)
class Wait:
    """A command's place in the room's line, and the name by which watchers know it."""

    id: str
    place: asyncio.Future[None]
    ahead: int


class RoomSandboxes(Protocol):
    """What rooms need of the lifecycle service."""

    async def create(
        self, who: Principal, project: str, path: str, options: CreateOptions, request_id: str | None
    ) -> object: ...
    async def get(self, project: str, path: str) -> SandboxView: ...
    async def exec(self, who: Principal, project: str, path: str, command: Command) -> tuple[Outcome, bool]: ...
    async def destroy(self, who: Principal, project: str, path: str) -> None: ...
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
        replace: bool,
    ) -> None: ...
    async def session_state(
        self, who: Principal, project: str, path: str, session_id: str
    ) -> tuple[str, dict[str, str]]: ...


class RoomShell:
    """Commands of every room; one gets `timeout_ms`, then exit code 124."""

    def __init__(self, book: RoomBook, sandboxes: RoomSandboxes, *, timeout_ms: int) -> None:
        self._book = book
        self._sandboxes = sandboxes
        self._timeout_ms = timeout_ms

    @contextmanager
    def place(self, here: Room) -> Iterator[Wait]:
        """A place in the room's line of commands, taken at once."""
        place = here.commands.take()
        self._book.show_waiting(here)
        try:
            yield Wait(secrets.token_hex(8), place, here.commands.ahead(place))
        finally:
            here.commands.leave(place)
            self._book.show_waiting(here)

    async def run(self, who: Principal, here: Room, cmd: str, cleanups: int, wait: Wait) -> tuple[Outcome, bool]:
        """Runs `cmd` when its turn comes, unless the room was cleaned since `cleanups` were counted.

        Makes the room's sandbox if it has none, and another if somebody destroyed it; the bool is an out-of-memory
        kill. Raises SANDBOX_DESTROYED after a cleanup, RESOURCE_BUSY, and whatever creating or running meets.
        Watchers see it wait, run and end.
        """
        shown: dict[str, Any] = {"commandId": wait.id, "command": cmd[:SHOWN]}
        if not wait.place.done():
            self._book.show(here, "command", {**shown, "phase": "waiting", "place": wait.ahead})
        await wait.place
        ended: dict[str, Any] = {"code": "OPERATION_INTERRUPTED"}
        try:
            self._book.show(here, "command", {**shown, "phase": "running", "waking": await self.sleeps(here)})
            outcome, out_of_memory = await self._run_somewhere(who, here, cmd, cleanups)
            head = turn.summary(outcome.stdout, outcome.stderr, outcome.exit_code)
            ended = {"exitCode": outcome.exit_code, "output": head}
            return outcome, out_of_memory
        except KennelError as failure:
            ended = {"code": failure.code, "error": failure.message[:SHOWN]}
            raise
        finally:
            self._book.show(here, "command", {**shown, "phase": "finished", **ended})

    async def _run_somewhere(self, who: Principal, here: Room, cmd: str, cleanups: int) -> tuple[Outcome, bool]:
        for _ in range(MAX_ATTEMPTS):
            path = await self._sandbox(who, here, cleanups)
            try:
                return await self._run(who, here, path, cmd)
            except KennelError as failure:
                if failure.code not in GONE or failure.admitted in ("yes", "unknown"):
                    raise
            await self._replace(who, here, path)
        raise busy("the room's sandbox keeps going away")

    async def sleeps(self, here: Room) -> bool:
        """Whether the room's sandbox has to be made or woken first."""
        if here.state.path is None:
            return True
        try:
            return not (await self._sandboxes.get(here.project, here.state.path)).running
        except KennelError:
            return True

    async def _sandbox(self, who: Principal, here: Room, cleanups: int) -> str:
        """The path of the room's sandbox, made if there is none; SANDBOX_DESTROYED once the room was cleaned."""
        for _ in range(MAX_ATTEMPTS):
            await self._book.refresh(here)
            if here.state.cleanups != cleanups:
                raise cleaned()
            if here.state.path is not None:
                return here.state.path
            async with here.change:
                await self._book.refresh(here)
                if here.state.path is None and here.state.cleanups == cleanups:
                    await self._assign(who, here)
        raise busy("the room's stream is contended")

    async def _replace(self, who: Principal, here: Room, gone: str) -> None:
        """Moves on from a sandbox that others destroyed; does nothing if the room has moved on by itself."""
        async with here.change:
            await self._book.refresh(here)
            if here.state.path == gone:
                await self._assign(who, here)

    async def _assign(self, who: Principal, here: Room) -> None:
        """Makes the next generation's sandbox, then claims it for the room; the loser of a race folds the winner's.

        In this order the stream never names a sandbox that is not the room's own. A crash in between is mended by the
        next use, which derives the same path and the same request id.
        """
        before = here.state
        generation = await self._make(who, here, before.generation + 1)
        path = room.sandbox_path(here.room_id, generation)
        payload: dict[str, Any] = {"path": path, "generation": generation, "roomId": here.room_id}
        if before.path is not None:
            payload["insteadOf"] = before.path
        now = before
        while (now.path, now.generation, now.cleanups) == (before.path, before.generation, before.cleanups):
            try:
                # A new stream's first event is its own birth, so the first assignment lands at 2.
                offset = max(now.offset, 1) + 1
                await self._book.record(here, fact(who, room.ASSIGNED, payload, offset=offset))
                return
            except KennelError as failure:
                if failure.code != "OFFSET_CONFLICT":
                    raise
            # Talk goes on meanwhile; what matters is that the room's sandbox and its cleanups are as they were.
            await self._book.refresh(here)
            now = here.state

    async def _make(self, who: Principal, here: Room, generation: int) -> int:
        """Creates the first free generation from `generation` on and returns its number.

        A generation is passed over when its name is retired, or when a caller has made a pet of that name: only names
        with a dot, from `.2` on, are out of a public create's reach.
        """
        for attempt in range(MAX_ATTEMPTS):
            path = room.sandbox_path(here.room_id, generation)
            # The blank keeps this id apart from every Idempotency-Key, which cannot hold one.
            request = f"room {hashlib.sha256(path.encode()).hexdigest()[:32]}"
            try:
                await self._sandboxes.create(who, here.project, path, OPTIONS, request)
                return generation
            except KennelError as failure:
                if failure.code in ("SANDBOX_EXISTS", "SANDBOX_DESTROYED"):
                    generation += 1
                elif failure.code == "SANDBOX_CREATING":  # another process is at it
                    await asyncio.sleep(min(0.02 * 2**attempt, 1.0))
                else:
                    raise
        raise busy("the room's sandbox is being made elsewhere")

    async def _run(self, who: Principal, here: Room, path: str, cmd: str) -> tuple[Outcome, bool]:
        """One command in the room's session, which is opened where the room last was if the sandbox has none."""
        command = Command(command=cmd, session_id=room.SESSION, timeout_ms=self._timeout_ms)
        try:
            ended = await self._sandboxes.exec(who, here.project, path, command)
        except KennelError as failure:
            if failure.code != "SESSION_NOT_FOUND":
                raise
            await self._open_session(who, here, path)
            ended = await self._sandboxes.exec(who, here.project, path, command)
        await self._save_shell(who, here, path)
        return ended

    async def _open_session(self, who: Principal, here: Room, path: str) -> None:
        """A shell that goes on where the room's last one was, or in `/workspace` when that directory is gone.

        Variables that the sandbox's own configuration was given, or lost, since that shell began are not replayed.
        """
        last = here.state.shell or Shell(DEFAULT_CWD, {})
        newer, offset = await self._configured(here.project, path, last.since)
        last = last.without(newer)
        here.shells = {path: offset}
        for cwd in dict.fromkeys((last.cwd, DEFAULT_CWD)):
            try:
                await self._sandboxes.open_session(
                    who, here.project, path, room.SESSION, cwd=cwd, env=dict(last.env), user=None, replace=True
                )
                return
            except KennelError as failure:
                if failure.code == "SESSION_ALREADY_EXISTS":  # another process was first
                    return
                if failure.code != "INVALID_PROCESS_CWD" or cwd == DEFAULT_CWD:
                    raise

    async def _configured(self, project: str, path: str, since: int) -> tuple[frozenset[str], int]:
        """Names that the sandbox's environment was configured with after `since`, and where its stream is now."""
        names: set[str] = set()
        log, head = self._book.log, await self._book.log.head(project, path) or 0
        while since < head:
            events = await log.read(project, path, after=since, before=head + 1, types=[CONFIGURED])
            if not events:
                break
            names.update(name for event in events for name in event.payload.get("env", {}))
            since = events[-1].offset
        return frozenset(names), head

    async def _save_shell(self, who: Principal, here: Room, path: str) -> None:
        """Records where the shell is now, if that changed; a command's answer never fails for it."""
        try:
            cwd, env = await self._sandboxes.session_state(who, here.project, path, room.SESSION)
            since = here.shells.get(path, here.state.shell.since if here.state.shell else 0)
            shell = room.keepable(cwd, env, since)
            if shell is None:
                logger.warning("the shell of %s is too large to be kept", here.stream)
            elif shell != here.state.shell and here.state.path == path:
                payload = {"path": path, "cwd": shell.cwd, "env": dict(shell.env), "since": since}
                await self._book.record(here, fact(who, room.SHELL_SAVED, payload))
        except KennelError as failure:
            logger.info("the shell of %s was not saved: %s", here.stream, failure)

    async def destroy(self, who: Principal, here: Room, path: str) -> str | None:
        """Destroys one of the room's sandboxes and records it; a complaint for people when that failed."""
        try:
            await self._sandboxes.destroy(who, here.project, path)
        except KennelError as failure:
            if failure.code not in GONE:
                logger.warning("room cleanup failed: %s", failure)
                return f"sandbox: {failure.message}"
        await self._book.record(here, fact(who, room.CLEANED, {"path": path, "roomId": here.room_id}))
        return None


def cleaned() -> KennelError:
    """The end of a command that the room's cleanup overtook before it began."""
    return error("SANDBOX_DESTROYED", "the room was cleaned while this command waited", admitted="no", hint="")
