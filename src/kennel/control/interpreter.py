"""Owns what may be asked of the code contexts of a sandbox: make, look, interrupt, end; cells are code_stream's.

Called by the API. Invariants: looking wakes nothing; a context that ended with its run of the sandbox says so, and is
never quietly replaced, except a language's default one.
"""

from __future__ import annotations

from dataclasses import replace

from kennel.control.code_stream import CodeStream, CodeStreams
from kennel.control.sandboxes import Sandboxes
from kennel.domain.code import LANGUAGES, CellCode, ContextFacts, NewContext, check_run
from kennel.domain.principal import Principal
from kennel.ports.guest import Guest
from kennel.wire.errors import KennelError


class Interpreter:
    """The service; `path` is the sandbox's."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self.cells = CodeStreams(sandboxes)

    async def create(self, who: Principal, project: str, path: str, asked: NewContext) -> ContextFacts:
        """A new context, waking the sandbox if it sleeps; comes back when it takes code."""
        async with self._sandboxes.guest(who, project, path) as (live, state):
            facts = await live.guest.interpreter.create(replace(asked, env={**state.env, **asked.env}))
        told = {"contextId": facts.id, "language": facts.language, "cwd": facts.cwd}
        await self._sandboxes.note(who, project, path, "sandbox/context-created", told)
        return facts

    async def list(self, project: str, path: str) -> list[ContextFacts]:
        """Those that run and the last that ended; none in a sandbox that sleeps."""
        guest = await self._sandboxes.awake_guest(project, path)
        return [] if guest is None else await guest.interpreter.list()

    async def get(self, project: str, path: str, context_id: str) -> ContextFacts:
        """One; CONTEXT_NOT_FOUND, or CONTEXT_TERMINATED when its run of the sandbox is over."""
        return await (await self._awake(project, path, context_id)).interpreter.get(context_id)

    async def delete(self, who: Principal, project: str, path: str, context_id: str) -> None:
        """Ends one and all it started; nothing happens when it ended with the sandbox."""
        try:
            guest = await self._awake(project, path, context_id)
        except KennelError as failure:
            if failure.code == "CONTEXT_TERMINATED":
                return
            raise
        facts = await guest.interpreter.delete(context_id)
        await self._sandboxes.note(who, project, path, "sandbox/context-deleted", {"contextId": facts.id})

    async def interrupt(self, project: str, path: str, context_id: str) -> bool:
        """Interrupts the cell that runs in it; whether one did."""
        return await (await self._awake(project, path, context_id)).interpreter.interrupt(context_id)

    async def _awake(self, project: str, path: str, context_id: str) -> Guest:
        """The guest that knows this context."""
        guest = await self._sandboxes.awake_guest(project, path)
        if context_id not in LANGUAGES:
            check_run(context_id, None if guest is None else guest.runtime)
        elif guest is None:
            check_run("", None)
        assert guest is not None
        return guest

    async def run(
        self, who: Principal, project: str, path: str, context_id: str, cell: CellCode, *, linger: float = 0.0
    ) -> CodeStream:
        """Begins a cell, to be followed with `read`; what refuses it before anything ran comes as its first event.

        `context_id` may be a language, for its default context. It may lose its reader for `linger` seconds.
        """
        if context_id not in LANGUAGES:
            await self._awake(project, path, context_id)
        return await self.cells.open(who, project, path, context_id, cell, linger=linger)
