"""Owns what may be asked of the code contexts of a sandbox: make, look, run a cell, interrupt, end.

Called by the API. Invariants: a run counts as activity and is noted with its end; looking wakes nothing; a context that
ended with its run of the sandbox says so, and is never quietly replaced, except a language's default one.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from kennel.control.live import Live
from kennel.control.sandboxes import Sandboxes
from kennel.domain import creation
from kennel.domain.code import LANGUAGES, CodeEvent, ContextFacts, NewContext, check_run, language_of
from kennel.domain.command import Command, Outcome
from kennel.domain.principal import Principal
from kennel.ports.guest import Guest
from kennel.ports.interpreter import Cells
from kennel.wire.errors import KennelError

_KILLED = Outcome(b"", b"", 137)


class Interpreter:
    """The service; `path` is the sandbox's."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes

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
        self, who: Principal, project: str, path: str, context_id: str, code: str, timeout_ms: int | None
    ) -> AsyncIterator[CodeEvent]:
        """A cell's events as they come, the last of them `end` or `failure`; leaving early interrupts it.

        What refuses the cell before anything ran is raised. `context_id` may be a language, for its default context.
        """
        if context_id not in LANGUAGES:
            await self._awake(project, path, context_id)
        number = 0
        async with self._sandboxes.guest(who, project, path) as (live, state):
            run_id = secrets.token_hex(8)
            note = creation.started(run_id, Command(command=code, timeout_ms=timeout_ms))
            told = {"runId": run_id, "context": context_id, "code": note["command"]}
            told |= {"timeoutMs": timeout_ms} if timeout_ms else {}
            await self._sandboxes.note(who, project, path, "sandbox/code-started", told)
            finished: dict[str, Any] = {"runId": run_id, "error": "INTERRUPTED"}
            cells: Cells | None = None
            try:
                cells = await self._begin(live.guest, state.env, context_id, code, timeout_ms)
                async for kind, body in cells:
                    number += 1
                    if kind == "end":
                        finished = {"runId": run_id, **_finished(body)}
                    yield CodeEvent(number, kind, body)
            except KennelError as failure:
                finished["error"] = failure.code
                await self._explain(live, failure)
                if not number:
                    raise
                yield CodeEvent(number + 1, "failure", failure.to_wire())
            finally:
                await self._sandboxes.note(who, project, path, "sandbox/code-finished", finished)
                if cells is not None:
                    await cells.close()

    @staticmethod
    async def _begin(guest: Guest, env: dict[str, str], context_id: str, code: str, timeout_ms: int | None) -> Cells:
        if context_id in LANGUAGES:
            return await guest.interpreter.run_default(language_of(context_id), env, code, timeout_ms)
        check_run(context_id, guest.runtime)
        return await guest.interpreter.run(context_id, code, timeout_ms)

    async def _explain(self, live: Live, failure: KennelError) -> None:
        """Says of a killed program whether memory ran out, which only the host knows for sure."""
        details = failure.details
        if failure.code != "CONTEXT_TERMINATED" or not isinstance(details, dict) or details.get("signal") != "SIGKILL":
            return
        if await self._sandboxes.ran_out_of_memory(live, _KILLED):
            details["oomKilled"] = True
            failure.message += "; the sandbox had no memory left"


def _finished(body: dict[str, Any]) -> dict[str, Any]:
    """The payload of `code-finished`, never what the cell printed."""
    names = ("executionCount", "status", "timedOut", "interrupted", "durationMs")
    return {name: body[name] for name in names}
