"""Owns rooms' commands: which sandbox a room has now, made on first use, and its one shell session.

Called by the rooms routes. Invariants: a room's stream decides its sandbox, so any number of control processes agree on
one, and it names only sandboxes that the room itself made; a command that was waiting when its room was cleaned never
runs in the next sandbox; commands of one room run in the order they came, and only so many may wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from kennel.control.line import Line
from kennel.domain import room
from kennel.domain.command import DEFAULT_CWD, Command, Outcome
from kennel.domain.create_options import CreateOptions
from kennel.domain.event import fact
from kennel.domain.principal import Principal
from kennel.domain.room import RoomState, Shell
from kennel.ports.event_log import EventLog
from kennel.wire.errors import KennelError, error

logger = logging.getLogger("kennel.rooms")

MAX_WAITING = 256
"""Calls of one room that run or wait at once in this process."""
MAX_ATTEMPTS = 16
"""Turns of look, decide, act before a contended room answers RESOURCE_BUSY."""
MAX_IDLE_ROOMS = 4096
"""Rooms whose fold is kept in memory with nothing running; the longest unused go first and cost a re-read."""
OPTIONS = CreateOptions(persist="disk")
"""A room's sandbox: installed packages last for the room's life, so the whole disk is kept."""

_GONE = ("SANDBOX_DESTROYED", "SANDBOX_NOT_FOUND")


class RoomSandboxes(Protocol):
    """What rooms need of the lifecycle service."""

    async def create(
        self, who: Principal, project: str, path: str, options: CreateOptions, request_id: str | None
    ) -> object: ...
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


@dataclass(slots=True)
class _Room:
    """One room in this process: its fold and the order of its commands."""

    project: str
    room_id: str
    stream: str
    state: RoomState = field(default_factory=RoomState)
    line: Line = field(default_factory=Line)
    change: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Rooms:
    """Rooms of every project, over the log and the sandboxes; a command gets `timeout_ms`, then exit code 124."""

    def __init__(self, log: EventLog, sandboxes: RoomSandboxes, *, timeout_ms: int = room.TIMEOUT_MS) -> None:
        self._log = log
        self._sandboxes = sandboxes
        self._timeout_ms = timeout_ms
        self._rooms: dict[tuple[str, str], _Room] = {}

    async def exec(self, who: Principal, project: str, room_id: str, cmd: str) -> tuple[Outcome, bool]:
        """Runs `cmd` in the room's shell, making the room's sandbox if it has none; the bool is an out-of-memory kill.

        Raises RESOURCE_BUSY when too many calls wait, SANDBOX_DESTROYED when the room was cleaned before the command's
        turn came, and whatever creating or running meets.
        """
        async with self._use(project, room_id) as here:
            place = here.line.take()
            try:
                await self._refresh(here)
                cleanups = here.state.cleanups
                await place
                for _ in range(MAX_ATTEMPTS):
                    path = await self._sandbox(who, here, cleanups)
                    try:
                        return await self._run(who, here, path, cmd)
                    except KennelError as failure:
                        if failure.code not in _GONE or failure.admitted in ("yes", "unknown"):
                            raise
                    await self._replace(who, here, path)
            finally:
                here.line.leave(place)
        raise _busy("the room's sandbox keeps going away")

    async def cleanup(self, who: Principal, project: str, room_id: str) -> list[str]:
        """Destroys the room's sandbox, running commands included; the errors met, none when all is gone.

        Idempotent; an unknown room is clean already. What could not be destroyed is tried again by the next call.
        """
        async with self._use(project, room_id) as here:
            async with here.change:
                await self._refresh(here)
                if here.state.path is not None:
                    await self._record(who, here, room.CLEANUP_REQUESTED, {"roomId": room_id})
                doomed = [path for path in here.state.uncleaned if path != here.state.path]
            found = [await self._destroy(who, here, path) for path in doomed]
            return [complaint for complaint in found if complaint is not None]

    @asynccontextmanager
    async def _use(self, project: str, room_id: str) -> AsyncIterator[_Room]:
        """The room's entry, held so that it is not forgotten; RESOURCE_BUSY when it is too crowded."""
        key = (project, room.stream_of(room_id))
        here = self._rooms.pop(key, None) or _Room(project, room_id, key[1])
        self._rooms[key] = here
        if here.users >= MAX_WAITING:
            raise _busy("too many calls wait for this room")
        here.users += 1
        try:
            yield here
        finally:
            here.users -= 1
            if len(self._rooms) > MAX_IDLE_ROOMS:
                self._forget()

    def _forget(self) -> None:
        """Drops the longest unused room that is idle; entries are in the order of their last use."""
        for key, here in self._rooms.items():
            if here.users == 0:
                del self._rooms[key]
                return

    async def _refresh(self, here: _Room) -> None:
        """Folds what the room's stream says since the last look; a stream that does not exist says nothing."""
        while True:
            try:
                events = await self._log.read(here.project, here.stream, after=here.state.offset)
            except KennelError as failure:
                if failure.code == "STREAM_NOT_FOUND":
                    return
                raise
            if not events:
                return
            for event in events:
                if event.offset == here.state.offset + 1:  # another task may have folded it meanwhile
                    here.state = room.evolve(here.state, event)

    async def _record(
        self, who: Principal, here: _Room, type_: str, payload: dict[str, Any], offset: int | None = None
    ) -> None:
        await self._log.append(here.project, here.stream, [fact(who, type_, payload, offset=offset)])
        await self._refresh(here)

    async def _sandbox(self, who: Principal, here: _Room, cleanups: int) -> str:
        """The path of the room's sandbox, made if there is none; SANDBOX_DESTROYED once the room was cleaned."""
        for _ in range(MAX_ATTEMPTS):
            await self._refresh(here)
            if here.state.cleanups != cleanups:
                raise error(
                    "SANDBOX_DESTROYED", "the room was cleaned while this command waited", admitted="no", hint=""
                )
            if here.state.path is not None:
                return here.state.path
            async with here.change:
                await self._refresh(here)
                if here.state.path is None and here.state.cleanups == cleanups:
                    await self._assign(who, here)
        raise _busy("the room's stream is contended")

    async def _replace(self, who: Principal, here: _Room, gone: str) -> None:
        """Moves on from a sandbox that others destroyed; does nothing if the room has moved on by itself."""
        async with here.change:
            await self._refresh(here)
            if here.state.path == gone:
                await self._assign(who, here)

    async def _assign(self, who: Principal, here: _Room) -> None:
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
        try:
            # A new stream's first event is its own birth, so the first assignment lands at 2.
            await self._record(who, here, room.ASSIGNED, payload, max(before.offset, 1) + 1)
        except KennelError as failure:
            if failure.code != "OFFSET_CONFLICT":
                raise
            await self._refresh(here)

    async def _make(self, who: Principal, here: _Room, generation: int) -> int:
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
        raise _busy("the room's sandbox is being made elsewhere")

    async def _run(self, who: Principal, here: _Room, path: str, cmd: str) -> tuple[Outcome, bool]:
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

    async def _open_session(self, who: Principal, here: _Room, path: str) -> None:
        """A shell that goes on where the room's last one was, or in `/workspace` when that directory is gone."""
        last = here.state.shell or Shell(DEFAULT_CWD, {})
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

    async def _save_shell(self, who: Principal, here: _Room, path: str) -> None:
        """Records where the shell is now, if that changed; a command's answer never fails for it."""
        try:
            cwd, env = await self._sandboxes.session_state(who, here.project, path, room.SESSION)
            shell = room.keepable(cwd, env)
            if shell is None:
                logger.warning("the shell of %s is too large to be kept", here.stream)
            elif shell != here.state.shell and here.state.path == path:
                payload = {"path": path, "cwd": shell.cwd, "env": dict(shell.env)}
                await self._record(who, here, room.SHELL_SAVED, payload)
        except KennelError as failure:
            logger.info("the shell of %s was not saved: %s", here.stream, failure)

    async def _destroy(self, who: Principal, here: _Room, path: str) -> str | None:
        """Destroys one of the room's sandboxes and records it; a complaint for people when that failed."""
        try:
            await self._sandboxes.destroy(who, here.project, path)
        except KennelError as failure:
            if failure.code not in _GONE:
                logger.warning("room cleanup failed: %s", failure)
                return f"sandbox: {failure.message}"
        await self._record(who, here, room.CLEANED, {"path": path, "roomId": here.room_id})
        return None


def _busy(message: str) -> KennelError:
    return error("RESOURCE_BUSY", message, admitted="no", retry_after_ms=1000)
