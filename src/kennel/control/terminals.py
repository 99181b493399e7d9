"""Owns what may be asked of the terminals of a sandbox: open and attach, list, resize, close.

Called by the API. Invariant: a terminal lives in the guest and ends with its program; what is attached keeps the
sandbox awake while it is, and holds up no sleep that is asked for; an onlooker does neither.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kennel.control.sandboxes import Sandboxes
from kennel.domain.principal import Principal
from kennel.domain.process import TerminalFacts
from kennel.ports.guest import Guest
from kennel.ports.processes import Screen
from kennel.wire.errors import error


@dataclass(frozen=True, slots=True)
class TerminalOptions:
    """What runs on a new terminal; without `argv` the image's shell."""

    argv: tuple[str, ...] | None = None
    cwd: str = "/workspace"
    env: dict[str, str] | None = None
    user: str | None = None
    columns: int = 80
    rows: int = 24


class Terminals:
    """The service; `path` is the sandbox's."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes

    async def list(self, project: str, path: str) -> list[TerminalFacts]:
        """Those that are open and the last that ended; none in a sandbox that sleeps."""
        guest = await self._sandboxes.awake_guest(project, path)
        return [] if guest is None else await guest.terminals.list()

    async def close(self, project: str, path: str, terminal_id: str) -> TerminalFacts:
        """Hangs up on what runs on it; TERMINAL_NOT_FOUND."""
        guest = await self._sandboxes.awake_guest(project, path)
        if guest is None:
            why = f"there is no terminal {terminal_id!r}: the sandbox is not running"
            raise error("TERMINAL_NOT_FOUND", why, admitted="no")
        return await guest.terminals.close(terminal_id)

    @asynccontextmanager
    async def attach(
        self,
        who: Principal,
        project: str,
        path: str,
        terminal_id: str,
        options: TerminalOptions,
        *,
        since: int | None,
        drive: bool,
        runtime: str | None = None,
    ) -> AsyncIterator[tuple[Guest, Screen]]:
        """Shows a terminal for the length of the block, opening it when there is none.

        One that ran in an earlier run of the sandbox (`runtime`) is STALE_TERMINAL_HANDLE; whoever only watches opens
        none, and wakes nothing.
        """
        if not drive and await self._sandboxes.awake_guest(project, path) is None:
            why = f"there is no terminal {terminal_id!r}: the sandbox is not running"
            raise error("TERMINAL_NOT_FOUND", why, admitted="no")
        async with self._sandboxes.attended(who, project, path) as guest:
            if drive:
                env = {**await self._sandboxes.environment(project, path), **(options.env or {})}
                await guest.terminals.open(terminal_id, _words(options, env), runtime)
            screen = await guest.terminals.attach(terminal_id, since=since, drive=drive, runtime=runtime)
            try:
                if drive and (screen.facts.columns, screen.facts.rows) != (options.columns, options.rows):
                    await guest.terminals.resize(terminal_id, options.columns, options.rows)
                yield guest, screen
            finally:
                await screen.close()

    @asynccontextmanager
    async def watch(
        self, project: str, path: str, terminal_id: str, *, since: int | None, runtime: str | None = None
    ) -> AsyncIterator[Screen]:
        """Shows an open terminal to an onlooker for the length of the block; TERMINAL_NOT_FOUND.

        It wakes nothing, keeps nothing awake, and ends when the sandbox falls asleep.
        """
        guest = await self._sandboxes.awake_guest(project, path)
        if guest is None:
            why = f"there is no terminal {terminal_id!r}: the sandbox is not running"
            raise error("TERMINAL_NOT_FOUND", why, admitted="no")
        screen = await guest.terminals.attach(terminal_id, since=since, drive=False, runtime=runtime)
        try:
            yield screen
        finally:
            await screen.close()


def _words(options: TerminalOptions, env: dict[str, str]) -> dict[str, Any]:
    return {
        "argv": None if options.argv is None else list(options.argv),
        "cwd": options.cwd,
        "env": env,
        "user": options.user,
        "cols": options.columns,
        "rows": options.rows,
    }
