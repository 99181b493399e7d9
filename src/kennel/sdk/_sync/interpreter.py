# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns code contexts as programs use them: cells that share variables, live output, rich results, interrupts.

Part of the sandbox's handle. Invariants: a cell is sent once and never repeated; one that raised is a result; a handle
holds a name only, and letting it go ends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kennel.sdk._sync.following import SILENCE
from kennel.sdk._sync.reply import Reply
from kennel.sdk._sync.returning import Returning
from kennel.sdk._sync.transport import Transport
from kennel.sdk.code_records import (
    CodeContextInfo,
    CodeError,
    CodeEvent,
    CodeResult,
    ContextList,
    Execution,
    Gathered,
    Interrupted,
    code_event,
)
from kennel.sdk.execution import milliseconds
from kennel.sdk.messages import Message
from kennel.sdk.names import segment

STARTING = 60.0
"""Seconds a program may take to start, beside any other call."""
LINGER = 15.0
"""Seconds a cell that is followed outlives a connection that broke."""


class CodeStream(Returning[CodeEvent]):
    """An iterator over a cell's events; use it in a `with` block, or `close` it. Leaving early interrupts the cell."""

    def __init__(self, transport: Transport, route: str, body: dict[str, Any]) -> None:
        super().__init__(transport, route, body, SILENCE + STARTING)

    @property
    def run_id(self) -> str | None:
        """Its id, once the server has taken the cell."""
        return self._name

    def _answered(self, reply: Reply) -> None:
        named = dict(reply.headers).get(b"kennel-run-id")
        if named is not None:
            self._name = named.decode("ascii", "replace")

    def _event(self, message: Message) -> CodeEvent:
        return code_event(message)

    def _over(self, event: CodeEvent) -> bool:
        return event.type == "end"


class CodeContext:
    """One context, by its id; `info` is what it was when the handle was made."""

    def __init__(self, transport: Transport, route: str, info: CodeContextInfo) -> None:
        self._transport, self._route = transport, f"{route}/contexts/{segment(info.id)}"
        self.id, self.language, self.info = info.id, info.language, info

    def __repr__(self) -> str:
        return f"CodeContext({self.id!r}, {self.language!r})"

    def run(
        self,
        code: str,
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        on_result: Callable[[CodeResult], Any] | None = None,
        on_error: Callable[[CodeError], Any] | None = None,
    ) -> Execution:
        """Runs a cell to its end, with `env` for it alone; the listeners hear of each piece as it comes."""
        told = {"stdout": on_stdout, "stderr": on_stderr, "result": on_result, "error": on_error}
        if not any(told.values()):
            # Without a limit: its own begins with its turn, which may come late.
            route = f"{self._route}/run"
            return self._transport.call("POST", route, Execution, body=_cell(code, timeout, env), extra=None)
        gathered = Gathered(told)
        with self.stream(code, timeout=timeout, env=env) as events:
            for event in events:
                gathered.take(event)
        return gathered.execution

    def stream(
        self,
        code: str,
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        linger: float = LINGER,
    ) -> CodeStream:
        """An iterator over a cell's events while it runs.

        A connection that breaks is made again and nothing lost, while the cell goes on for `linger` seconds (0: it is
        interrupted with its connection).
        """
        body = _cell(code, timeout, env)
        if linger > 0:
            body["linger"] = milliseconds(linger)
        return CodeStream(self._transport, f"{self._route}/run", body)

    def interrupt(self) -> bool:
        """Interrupts the cell that runs in it; whether one did."""
        return (self._transport.call("POST", f"{self._route}/interrupt", Interrupted, body={})).interrupted

    def refresh(self) -> CodeContextInfo:
        """What it is now; wakes nothing."""
        self.info = self._transport.call("GET", self._route, CodeContextInfo, repeat=True)
        return self.info

    def delete(self) -> None:
        """Ends it and all it started."""
        self._transport.call("DELETE", self._route, type(None))


class InterpreterMethods:
    """The part of a sandbox's handle that is about code contexts."""

    _transport: Transport
    _route: str

    def create_code_context(
        self,
        language: str = "python",
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        python: str | None = None,
    ) -> CodeContext:
        """A new context: `python`, `javascript` or `typescript`; comes back when it takes code.

        `python` is an interpreter in the sandbox, such as that of a virtual environment.
        """
        given = {"cwd": cwd, "env": None if env is None else dict(env), "python": python}
        body = {"language": language} | {name: value for name, value in given.items() if value is not None}
        route = f"{self._route}/contexts"
        info = self._transport.call("POST", route, CodeContextInfo, body=body, extra=STARTING)
        return CodeContext(self._transport, self._route, info)

    def get_code_context(self, context_id: str) -> CodeContext:
        """A handle on a context, whether there is one or not; a language means its default context. No I/O."""
        return CodeContext(self._transport, self._route, CodeContextInfo(id=context_id, language=""))

    def list_code_contexts(self) -> list[CodeContext]:
        """Those that run and the last 64 that ended; none while it sleeps."""
        found = self._transport.call("GET", f"{self._route}/contexts", ContextList, repeat=True)
        return [CodeContext(self._transport, self._route, info) for info in found.contexts]

    def delete_code_context(self, context_id: str) -> None:
        """Ends a context and all it started."""
        self.get_code_context(context_id).delete()

    def run_code(
        self,
        code: str,
        *,
        context: CodeContext | str | None = None,
        language: str = "python",
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        on_result: Callable[[CodeResult], Any] | None = None,
        on_error: Callable[[CodeError], Any] | None = None,
    ) -> Execution:
        """Runs a cell in `context`, or in the default one of `language`, and returns all it showed.

        `timeout` is in seconds; when it runs out the cell is interrupted and the context keeps its variables. `env` are
        environment variables for this cell alone. A cell that raised has `error`; CONTEXT_TERMINATED is raised when its
        program ended.
        """
        return self._context(context, language).run(
            code, timeout=timeout, env=env, on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result,
            on_error=on_error,
        )  # fmt: skip

    def run_code_stream(
        self,
        code: str,
        *,
        context: CodeContext | str | None = None,
        language: str = "python",
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        linger: float = LINGER,
    ) -> CodeStream:
        """An iterator over a cell's events while it runs: `start`, `stdout`, `stderr`, `result`, `error`, `end`.

        A connection that breaks is made again, for `linger` seconds; `truncated` stands for events that were lost.
        """
        return self._context(context, language).stream(code, timeout=timeout, env=env, linger=linger)

    def _context(self, context: CodeContext | str | None, language: str) -> CodeContext:
        if isinstance(context, CodeContext):
            return context
        return self.get_code_context(context if context is not None else _ALIASES.get(language, language))


_ALIASES = {"python3": "python", "js": "javascript", "node": "javascript", "ts": "typescript"}


def _cell(code: str, timeout: float | None, env: Mapping[str, str] | None) -> dict[str, Any]:
    limit = {} if timeout is None else {"timeout": milliseconds(timeout)}
    return {"code": code} | limit | ({"env": dict(env)} if env else {})
