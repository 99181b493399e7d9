"""Owns what may be asked of the background processes of a sandbox: start, look, wait, read, write, end.

Called by the API. Invariants: looking wakes nothing, and what ran before the last start is gone, said as
PROCESS_NOT_FOUND or, to a handle that names its run, STALE_PROCESS_HANDLE; the processes themselves live in the guest
and end neither with a call nor with this process; one that asks for it keeps its sandbox awake.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from kennel.control.endings import Endings
from kennel.control.sandboxes import Sandboxes
from kennel.domain import creation
from kennel.domain.command import Command
from kennel.domain.principal import Principal
from kennel.domain.process import ProcessFacts
from kennel.ports.guest import Guest
from kennel.ports.processes import Log
from kennel.wire.errors import KennelError, error

T = TypeVar("T")
_WAITS = {"exit": "PROCESS_WAIT_TIMEOUT", "log": "PROCESS_WAIT_TIMEOUT", "port": "PROCESS_READY_TIMEOUT"}


class Processes:
    """The service; `path` is the sandbox's."""

    def __init__(self, sandboxes: Sandboxes, endings: Endings) -> None:
        self._sandboxes = sandboxes
        self._endings = endings

    async def start(
        self,
        who: Principal,
        project: str,
        path: str,
        command: Command,
        *,
        process_id: str | None = None,
        stdin: bool = False,
        keep_awake: bool = False,
    ) -> ProcessFacts:
        """Starts it, waking the sandbox if it sleeps; comes back when it runs."""
        async with self._sandboxes.guest(who, project, path) as (live, state):
            full = replace(command, env={**state.env, **command.env})
            facts = await live.guest.processes.start(full, process_id=process_id, stdin=stdin, keep_awake=keep_awake)
        told = {name: value for name, value in creation.started("", command).items() if name != "execId"}
        await self._sandboxes.note(who, project, path, "sandbox/process-started", {"processId": facts.id, **told})
        await self._endings.expect(project, path, live, facts.id, facts.began)
        if keep_awake:
            await self._sandboxes.keep_awake(project, path)
        return facts

    async def list(self, project: str, path: str) -> list[ProcessFacts]:
        """Those that run and the last that ended; none in a sandbox that sleeps."""
        guest = await self._sandboxes.awake_guest(project, path)
        return [] if guest is None else await guest.processes.list()

    async def _at(self, project: str, path: str, process_id: str, runtime: str | None) -> Guest:
        guest = await self._sandboxes.awake_guest(project, path)
        if guest is not None:
            return guest
        if runtime is not None:
            raise error("STALE_PROCESS_HANDLE", "that process ended with the sandbox's last run", admitted="no")
        why = f"there is no process {process_id!r}: the sandbox is not running"
        raise error("PROCESS_NOT_FOUND", why, admitted="no")

    async def get(self, project: str, path: str, process_id: str, runtime: str | None = None) -> ProcessFacts:
        """One; PROCESS_NOT_FOUND, STALE_PROCESS_HANDLE."""
        guest = await self._at(project, path, process_id, runtime)
        return await guest.processes.get(process_id, runtime)

    async def kill(
        self, project: str, path: str, process_id: str, *, grace_ms: int | None, runtime: str | None = None
    ) -> ProcessFacts:
        """Ends all of it, and comes back when it is gone; harmless for one that has ended."""
        guest = await self._at(project, path, process_id, runtime)
        return await guest.processes.kill(process_id, grace_ms, runtime)

    async def kill_all(self, project: str, path: str, *, grace_ms: int | None) -> int:
        """Ends every one; how many ran."""
        guest = await self._sandboxes.awake_guest(project, path)
        return 0 if guest is None else await guest.processes.kill_all(grace_ms)

    async def signal(
        self, project: str, path: str, process_id: str, number: int, runtime: str | None = None
    ) -> ProcessFacts:
        """A signal to every process of it; harmless for one that has ended."""
        guest = await self._at(project, path, process_id, runtime)
        return await guest.processes.signal(process_id, number, runtime)

    async def feed(
        self, project: str, path: str, process_id: str, data: bytes, *, eof: bool, runtime: str | None = None
    ) -> int:
        """Bytes for its standard input; comes back when it has read them."""
        guest = await self._at(project, path, process_id, runtime)
        return await guest.processes.feed(process_id, data, eof=eof, runtime=runtime)

    @asynccontextmanager
    async def log(
        self, who: Principal, project: str, path: str, process_id: str, since: int, *, follow: bool, runtime: str | None
    ) -> AsyncIterator[Log]:
        """Its log for the length of the block; following it keeps the sandbox awake."""
        await self._at(project, path, process_id, runtime)
        async with self._sandboxes.attended(who, project, path) as guest:
            log = await guest.processes.log(process_id, since, follow=follow, runtime=runtime)
            try:
                yield log
            finally:
                await log.close()

    async def wait(
        self,
        who: Principal,
        project: str,
        path: str,
        process_id: str,
        words: dict[str, Any],
        *,
        timeout: float,
        runtime: str | None = None,
    ) -> dict[str, Any]:
        """Waits for its `exit`, a `log` line or a `port`; the wait's end changes nothing for the process."""
        await self._at(project, path, process_id, runtime)

        async def ask(guest: Guest) -> dict[str, Any]:
            return await guest.processes.wait(process_id, words, runtime)

        told = {"processId": process_id, "condition": words["for"], "timeoutMs": round(timeout * 1000)}
        return await self._in_time(who, project, path, ask, timeout, _WAITS[words["for"]], told)

    async def wait_for_port(
        self, who: Principal, project: str, path: str, words: dict[str, Any], *, timeout: float
    ) -> dict[str, Any]:
        """Waits for a port that anything in the sandbox opens."""

        async def ask(guest: Guest) -> dict[str, Any]:
            return await guest.processes.wait_for_port(words)

        told = {"port": words["port"], "timeoutMs": round(timeout * 1000)}
        return await self._in_time(who, project, path, ask, timeout, "PROCESS_READY_TIMEOUT", told)

    async def _in_time(
        self,
        who: Principal,
        project: str,
        path: str,
        ask: Callable[[Guest], Awaitable[T]],
        timeout: float,
        code: str,
        told: dict[str, Any],
    ) -> T:
        async with self._sandboxes.attended(who, project, path) as guest:
            try:
                async with asyncio.timeout(timeout):
                    return await ask(guest)
            except TimeoutError as late:
                if isinstance(late, KennelError):
                    raise
                raise error(code, f"it did not come in {timeout:g} s", details=told, admitted="yes") from None
