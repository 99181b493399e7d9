"""Owns a scripted lifecycle service: sandboxes that are made, destroyed and hold shells, in memory.

Used by the unit tests of rooms. Invariant: it refuses what the real one refuses, and only when told to otherwise.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from kennel.domain import room
from kennel.domain.command import Command, Outcome
from kennel.domain.create_options import CreateOptions
from kennel.domain.principal import Principal
from kennel.wire.errors import KennelError, error


class Pets:
    """Sandboxes as the lifecycle service keeps them, with shells that know `cd`, `export`, `hang` and `where`."""

    def __init__(self) -> None:
        self.alive: dict[str, str | None] = {}
        self.options: dict[str, CreateOptions] = {}
        self.destroyed: set[str] = set()
        self.shells: dict[str, tuple[str, dict[str, str]]] = {}
        self.creates: list[str] = []
        self.ran: list[tuple[str, str]] = []
        self.active = 0
        self.most_active = 0
        self.ends: dict[str, asyncio.Event] = {}
        self.refuse: dict[str, list[KennelError]] = {}
        self.missing_directories: set[str] = set()
        self.create_delay = 0.0

    async def get(self, project: str, path: str) -> Any:
        self._check(path)
        return SimpleNamespace(running=path in self.shells)

    def _refused(self, verb: str) -> None:
        if self.refuse.get(verb):
            raise self.refuse[verb].pop(0)

    async def create(
        self, who: Principal, project: str, path: str, options: CreateOptions, request_id: str | None
    ) -> object:
        self.creates.append(path)
        await asyncio.sleep(self.create_delay)
        self._refused("create")
        if path in self.destroyed:
            raise error("SANDBOX_DESTROYED", "retired")
        if self.alive.setdefault(path, request_id) != request_id:
            raise error("SANDBOX_EXISTS", "taken")
        self.options[path] = options
        return None

    def _check(self, path: str) -> None:
        if path in self.destroyed:
            raise error("SANDBOX_DESTROYED", "gone")
        if path not in self.alive:
            raise error("SANDBOX_NOT_FOUND", "never was")

    async def exec(self, who: Principal, project: str, path: str, command: Command) -> tuple[Outcome, bool]:
        await asyncio.sleep(0)
        self._check(path)
        self._refused("exec")
        if path not in self.shells:
            raise error("SESSION_NOT_FOUND", "no such session")
        assert (command.session_id, command.timeout_ms) == (room.SESSION, 120_000)
        assert command.command is not None
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            return await self._obey(path, command.command), False
        finally:
            self.active -= 1

    async def _obey(self, path: str, text: str) -> Outcome:
        self.ran.append((path, text))
        cwd, env = self.shells[path]
        word, _, rest = text.partition(" ")
        if word == "hang":
            await self.ends.setdefault(path, asyncio.Event()).wait()
            raise error("SANDBOX_DESTROYED", "destroyed under it", admitted="yes")
        if word == "cd":
            self.shells[path] = (rest, env)
        elif word == "export":
            name, _, value = rest.partition("=")
            self.shells[path] = (cwd, {**env, name: value})
        await asyncio.sleep(0.001)
        told = f"{self.shells[path][0]} {sorted(self.shells[path][1].items())}"
        return Outcome(stdout=told.encode(), stderr=b"", exit_code=7 if word == "exit" else 0)

    async def open_session(
        self, who: Principal, project: str, path: str, session_id: str, *, cwd: str, env: dict[str, str],
        user: str | None, replace: bool,
    ) -> None:  # fmt: skip
        self._check(path)
        assert (session_id, user, replace) == (room.SESSION, None, True)
        if cwd in self.missing_directories:
            raise error("INVALID_PROCESS_CWD", "no such directory")
        if path in self.shells:
            raise error("SESSION_ALREADY_EXISTS", "open already")
        self.shells[path] = (cwd, dict(env))

    async def session_state(
        self, who: Principal, project: str, path: str, session_id: str
    ) -> tuple[str, dict[str, str]]:
        self._refused("state")
        return self.shells[path]

    async def destroy(self, who: Principal, project: str, path: str) -> None:
        if path not in self.alive:
            raise error("SANDBOX_NOT_FOUND", "never was")
        self._refused("destroy")
        self.destroyed.add(path)
        self.ends.setdefault(path, asyncio.Event()).set()

    def sleep(self) -> None:
        """All shells are lost."""
        self.shells.clear()
