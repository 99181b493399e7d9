"""Owns cells of code contexts while they run: one begins, is noted, is followed to its end.

Called by interpreter. Invariants: a run counts as activity and is noted with its end; the last event is `end` or
`failure`; a cell nobody reads is interrupted, at once or after the linger its caller asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Protocol

import msgspec

from kennel.control.followed import Followed, Shelf
from kennel.control.live import Live
from kennel.domain import creation
from kennel.domain.code import LANGUAGES, CellCode, check_run, language_of
from kennel.domain.command import Command, Outcome
from kennel.domain.principal import Principal
from kennel.ports.guest import Guest
from kennel.ports.interpreter import Cells
from kennel.wire.errors import KennelError

_KILLED = Outcome(b"", b"", 137)
_encoder = msgspec.json.Encoder()


class Admission(Protocol):
    """How a cell gets at a running sandbox; control/sandboxes.py."""

    def guest(self, who: Principal, project: str, path: str) -> Any: ...
    async def note(self, who: Principal, project: str, path: str, type_: str, payload: dict[str, Any]) -> None: ...
    async def ran_out_of_memory(self, live: Live, outcome: Outcome) -> bool: ...


class CodeStream(Followed):
    """One cell in progress; `over` has the body of its `end`, or why it came to nothing."""

    LAST = ("end", "failure")

    def __init__(self, *, linger: float) -> None:
        super().__init__(linger=linger)
        self.over: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._cells: AsyncIterator[tuple[str, dict[str, Any]]] | None = None

    def begun(self, cells: Cells) -> None:
        """The guest was asked."""
        self._cells = aiter(cells)

    async def more(self) -> bool:
        """The next of its events; the last one waits for what has to be noted first."""
        if self._cells is None or self.over.done():
            return False
        try:
            kind, body = await anext(self._cells)
        except KennelError as failure:
            self.over.set_exception(failure)
            self.over.exception()  # whoever carries it may have left
            return False
        if kind == "end":
            self.over.set_result(body)
            return False
        if kind == "start":
            body = {**body, "runId": self.id}
        self.tell(kind, body=body, size=len(_encoder.encode(body)) if self.linger else 1)
        return True


class CodeStreams(Shelf[CodeStream]):
    """Every cell that this process follows; a cell is found by its context and its id."""

    def __init__(self, sandboxes: Admission) -> None:
        super().__init__("cell", "failure")
        self._sandboxes = sandboxes

    async def open(
        self, who: Principal, project: str, path: str, context_id: str, cell: CellCode, *, linger: float
    ) -> CodeStream:
        """Asks the guest for a cell; see Interpreter.run."""
        self.make_room(linger)
        stream = CodeStream(linger=linger)
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work = self._carry_out(who, project, path, stream, begun, context_id, cell)
        return await self.carry((project, path, f"{context_id}/{stream.id}"), stream, work, begun)

    async def _carry_out(
        self, who: Principal, project: str, path: str, stream: CodeStream, begun: asyncio.Future[None],
        context_id: str, cell: CellCode,
    ) -> None:  # fmt: skip
        async with self._sandboxes.guest(who, project, path) as (live, state):
            told = _told(stream.id, context_id, cell)
            await self._sandboxes.note(who, project, path, "sandbox/code-started", told)
            finished: dict[str, Any] = {"runId": stream.id, "error": "INTERRUPTED"}
            try:
                end = await self._follow(live, state.env, stream, begun, context_id, cell)
                finished = {"runId": stream.id, **_finished(end)}
            except KennelError as failure:
                finished["error"] = failure.code
                await self._explain(live, failure)
                raise
            finally:
                await self._sandboxes.note(who, project, path, "sandbox/code-finished", finished)
            stream.ended("end", end)

    @staticmethod
    async def _follow(
        live: Live, env: dict[str, str], stream: CodeStream, begun: asyncio.Future[None], context_id: str,
        cell: CellCode,
    ) -> dict[str, Any]:  # fmt: skip
        cells = await _begin(live.guest, env, context_id, cell)
        try:
            stream.begun(cells)
            if not begun.done():
                begun.set_result(None)
            return await asyncio.shield(stream.over)
        finally:
            await cells.close()

    async def _explain(self, live: Live, failure: KennelError) -> None:
        """Says of a killed program whether memory ran out, which only the host knows for sure."""
        details = failure.details
        if failure.code != "CONTEXT_TERMINATED" or not isinstance(details, dict) or details.get("signal") != "SIGKILL":
            return
        if await self._sandboxes.ran_out_of_memory(live, _KILLED):
            details["oomKilled"] = True
            failure.message += "; the sandbox had no memory left"


async def _begin(guest: Guest, env: dict[str, str], context_id: str, cell: CellCode) -> Cells:
    if context_id in LANGUAGES:
        return await guest.interpreter.run_default(language_of(context_id), env, cell)
    check_run(context_id, guest.runtime)
    return await guest.interpreter.run(context_id, cell)


def _told(run_id: str, context_id: str, cell: CellCode) -> dict[str, Any]:
    """The payload of `code-started`, cut to what a log can keep."""
    code = creation.started(run_id, Command(command=cell.code))["command"]
    limit = {"timeoutMs": cell.timeout_ms} if cell.timeout_ms else {}
    return {"runId": run_id, "context": context_id, "code": code, **limit}


def _finished(body: dict[str, Any]) -> dict[str, Any]:
    """The payload of `code-finished`, never what the cell printed."""
    names = ("executionCount", "status", "timedOut", "interrupted", "durationMs")
    return {name: body[name] for name in names}
