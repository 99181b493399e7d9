# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns code contexts as programs use them: cells that share variables, live output, rich results, interrupts.

Part of the sandbox's handle. Invariants: a cell is sent once and never repeated; one that raised is a result; a handle
holds a name only, and letting it go ends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from kennel.sdk._sync.following import SILENCE
from kennel.sdk._sync.reply import Reply
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
from kennel.sdk.messages import Message, Messages
from kennel.sdk.names import segment
from kennel.wire.errors import KennelError, error

STARTING = 60.0
"""Seconds a program may take to start, beside any other call."""


class CodeStream:
    """An iterator over a cell's events; use it in a `with` block, or `close` it. Leaving early interrupts the cell."""

    def __init__(self, transport: Transport, route: str, body: dict[str, Any]) -> None:
        self._transport, self._route, self._body = transport, route, body
        self._reply: Reply | None = None
        self._parser = Messages()
        self._waiting: list[Message] = []
        self._ended = False

    def __iter__(self) -> CodeStream:
        return self

    def __next__(self) -> CodeEvent:
        while not self._ended:
            if self._waiting:
                return self._take(self._waiting.pop(0))
            self._more()
        raise StopIteration

    def _take(self, message: Message) -> CodeEvent:
        try:
            event = code_event(message)
        except KennelError:
            self.close()
            raise
        if event.type == "end":
            self.close()
        return event

    def _more(self) -> None:
        if self._reply is None:
            self._reply = self._transport.open(
                self._route, accept="text/event-stream", query={}, headers={}, silence=SILENCE + STARTING,
                method="POST", body=self._body,
            )  # fmt: skip
        try:
            piece = self._reply.read()
        except KennelError:
            self.close()
            raise
        if piece is None:
            self.close()
            raise error("CONNECTION_LOST", "the stream ended without the cell's end", admitted="yes")
        self._waiting = self._parser.feed(piece)

    def close(self) -> None:
        """Ends the iteration, and interrupts the cell if it still runs."""
        self._ended = True
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.close()

    def __enter__(self) -> CodeStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        on_result: Callable[[CodeResult], Any] | None = None,
        on_error: Callable[[CodeError], Any] | None = None,
    ) -> Execution:
        """Runs a cell to its end; the listeners hear of each piece as it comes."""
        told = {"stdout": on_stdout, "stderr": on_stderr, "result": on_result, "error": on_error}
        if not any(told.values()):
            # Without a limit: its own begins with its turn, which may come late.
            route = f"{self._route}/run"
            return self._transport.call("POST", route, Execution, body=_cell(code, timeout), extra=None)
        gathered = Gathered(told)
        with self.stream(code, timeout=timeout) as events:
            for event in events:
                gathered.take(event)
        return gathered.execution

    def stream(self, code: str, *, timeout: float | None = None) -> CodeStream:
        """An iterator over a cell's events while it runs."""
        return CodeStream(self._transport, f"{self._route}/run", _cell(code, timeout))

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
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        on_result: Callable[[CodeResult], Any] | None = None,
        on_error: Callable[[CodeError], Any] | None = None,
    ) -> Execution:
        """Runs a cell in `context`, or in the default one of `language`, and returns all it showed.

        `timeout` is in seconds; when it runs out the cell is interrupted and the context keeps its variables. A cell
        that raised has `error`; CONTEXT_TERMINATED is raised when its program ended.
        """
        return self._context(context, language).run(
            code, timeout=timeout, on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result, on_error=on_error
        )

    def run_code_stream(
        self,
        code: str,
        *,
        context: CodeContext | str | None = None,
        language: str = "python",
        timeout: float | None = None,
    ) -> CodeStream:
        """An iterator over a cell's events while it runs: `start`, `stdout`, `stderr`, `result`, `error`, `end`."""
        return self._context(context, language).stream(code, timeout=timeout)

    def _context(self, context: CodeContext | str | None, language: str) -> CodeContext:
        if isinstance(context, CodeContext):
            return context
        return self.get_code_context(context if context is not None else _ALIASES.get(language, language))


_ALIASES = {"python3": "python", "js": "javascript", "node": "javascript", "ts": "typescript"}


def _cell(code: str, timeout: float | None) -> dict[str, Any]:
    return {"code": code} | ({} if timeout is None else {"timeout": milliseconds(timeout)})
