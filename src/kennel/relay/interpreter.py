"""Owns calls to the program that keeps a sandbox's code contexts, with every line of its answers checked.

Made by link: ports' GuestInterpreter. Invariant: that program is the sandbox's own, and any program inside may take its
place: what it says costs its own call and nothing else, in bounded memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from kennel.domain import code
from kennel.domain.code import CellCode, ContextFacts, ContextState, EventKind, Language, NewContext
from kennel.relay.transfer import Transfer
from kennel.wire.errors import KennelError, error

T = TypeVar("T")
MOST_LINE = 8 * 1024 * 1024
"""Bytes of one line; the program inside keeps to 6 MiB."""
MOST_CELL = 64 * 1024 * 1024
"""Bytes of one cell's lines, of which the program inside makes at most 40 MiB and its frames."""
MOST_CONTEXTS = 256
_CODES = frozenset((
    "CONTEXT_NOT_FOUND", "CONTEXT_TERMINATED", "RESOURCE_BUSY", "PYTHON_NOT_AVAILABLE", "JAVASCRIPT_NOT_AVAILABLE",
    "NOT_SUPPORTED", "INVALID_PROCESS_CWD", "INTERPRETER_NOT_READY", "CODE_EXECUTION_ERROR", "INVALID_COMMAND",
))  # fmt: skip
_BEFORE = _CODES - {"CONTEXT_TERMINATED", "CODE_EXECUTION_ERROR"}
"""Codes after which nothing was run."""
_MOST_MESSAGE = 2000


class _Line(msgspec.Struct, tag_field="event", rename="camel", kw_only=True):
    """What every line has in common: `event` says what it is."""


Count = int
Short = str


class _Start(_Line, tag="start"):
    context_id: str
    execution_count: Count


class _Stdout(_Line, tag="stdout"):
    text: str


class _Stderr(_Line, tag="stderr"):
    text: str


class _Result(_Line, tag="result"):
    main: bool
    data: dict[str, Any]
    metadata: dict[str, Any] | None = None
    display_id: str | None = None
    update: bool | None = None
    omitted: list[str] | None = None


class _Error(_Line, tag="error"):
    name: str
    value: str
    traceback: list[str]


class _Clear(_Line, tag="clear"):
    wait: bool


class _End(_Line, tag="end"):
    execution_count: Count
    status: Literal["ok", "error"]
    timed_out: bool
    interrupted: bool
    dropped_bytes: Count
    duration_ms: float


class _Failure(_Line, tag="failure"):
    code: str
    message: str
    details: dict[str, str | int | bool | None] | None = None


class _Facts(msgspec.Struct, rename="camel"):
    id: str
    language: Language
    cwd: str
    state: ContextState
    created: int
    used: int
    execution_count: Count
    ended: dict[str, str | int | bool | None] | None = None


class _Answer(_Line, tag="answer"):
    context: _Facts | None = None
    contexts: list[_Facts] | None = None
    interrupted: bool = False


Told = _Start | _Stdout | _Stderr | _Result | _Error | _Clear | _End | _Failure | _Answer
_decoder = msgspec.json.Decoder(Told)
_encoder = msgspec.json.Encoder()


class Caller(Protocol):
    """What these calls need of their link."""

    @property
    def runtime(self) -> str: ...
    def transfer(self, op: str, args: dict[str, Any]) -> Transfer: ...


class RemoteCells:
    """A cell in progress."""

    def __init__(self, transfer: Transfer) -> None:
        self._transfer = transfer
        self._left = MOST_CELL

    async def __aiter__(self) -> AsyncIterator[tuple[EventKind, dict[str, Any]]]:
        async for told in self.lines():
            if isinstance(told, _Failure):
                raise failure(told)
            if isinstance(told, _Answer):
                raise broken("an answer in the middle of a cell")
            yield shown(told)
            if isinstance(told, _End):
                return
        raise broken("it ended without the cell's end")

    async def lines(self) -> AsyncIterator[Told]:
        """Its lines, checked one by one."""
        rest = bytearray()
        async for piece in self._transfer:
            self._left -= len(piece)
            rest += piece
            while (end := rest.find(b"\n", max(0, len(rest) - len(piece)))) >= 0:
                line = bytes(rest[:end])
                del rest[: end + 1]
                piece = bytes(rest)
                yield read(line)
            if len(rest) > MOST_LINE or self._left < 0:
                raise broken("more than a cell may say")

    async def close(self) -> None:
        """Hangs up, which interrupts what still runs."""
        await self._transfer.close()


def read(line: bytes) -> Told:
    """One line as what it says it is."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise broken(str(problem)[:200]) from None


def shown(told: Any) -> tuple[EventKind, dict[str, Any]]:
    """An event as the wire shows it."""
    kind: EventKind = told.__struct_config__.tag
    body = {name: value for name, value in msgspec.to_builtins(told).items() if name != "event"}
    if isinstance(told, _Result):
        del body["data"]
        body = code.result_body(told.data, **body)
    elif isinstance(told, _End):
        body["truncated"] = told.dropped_bytes > 0
    return kind, body


def failure(told: _Failure) -> KennelError:
    """Why a call came to nothing, as its caller hears it."""
    known = told.code in _CODES
    details = dict(list((told.details or {}).items())[:16])
    hint = details.pop("hint", None)
    return error(
        told.code if known else "CODE_EXECUTION_ERROR",
        told.message[:_MOST_MESSAGE],
        details=details or None,
        hint=hint[:_MOST_MESSAGE] if isinstance(hint, str) else None,
        admitted="no" if told.code in _BEFORE else "yes",
    )


def broken(why: str) -> KennelError:
    """The program inside ended, or says what it may not."""
    return error(
        "INTERPRETER_NOT_READY", f"the program that keeps the code contexts failed: {why}", admitted="unknown",
        hint="its contexts are gone; make a new one", retry_after_ms=1000,
    )  # fmt: skip


class RemoteInterpreter:
    """The contexts of one sandbox."""

    def __init__(self, link: Caller) -> None:
        self._link = link

    async def _begin(self, request: dict[str, Any]) -> RemoteCells:
        """A call; only what makes a context starts the program that keeps them."""
        makes = request["op"] == "create" or request.get("default") is True
        transfer = self._link.transfer("interpreter", {"look": not makes})
        try:
            await transfer.head()
            await transfer.write(_encoder.encode(request) + b"\n")
        except BaseException:
            await transfer.close()
            raise
        return RemoteCells(transfer)

    async def _ask(self, request: dict[str, Any], take: Callable[[_Answer], T | None]) -> T:
        call = await self._begin(request)
        try:
            async for told in call.lines():
                if isinstance(told, _Failure):
                    raise failure(told)
                found = take(told) if isinstance(told, _Answer) else None
                if found is not None:
                    return found
                raise broken("another answer than was asked for")
            raise broken("it ended without an answer")
        finally:
            await call.close()

    async def create(self, asked: NewContext) -> ContextFacts:
        """A new context."""
        return await self._ask(self._words(asked, "create"), _one)

    def _words(self, asked: NewContext, op: str) -> dict[str, Any]:
        words = {"op": op, "language": asked.language, "cwd": asked.cwd, "env": asked.env, "python": asked.python}
        return words | {"prefix": code.prefix_of(self._link.runtime)}

    async def list(self) -> list[ContextFacts]:
        """Those that run and the last that ended."""
        try:
            return await self._ask({"op": "list"}, _all)
        except KennelError as failure:
            if failure.code == "CONTEXT_NOT_FOUND":
                return []
            raise

    async def get(self, context_id: str) -> ContextFacts:
        """One; CONTEXT_NOT_FOUND."""
        return await self._ask({"op": "get", "context": context_id}, _one)

    async def delete(self, context_id: str) -> ContextFacts:
        """Ends one and all it started."""
        return await self._ask({"op": "delete", "context": context_id}, _one)

    async def interrupt(self, context_id: str) -> bool:
        """Whether a cell ran."""
        return await self._ask({"op": "interrupt", "context": context_id}, lambda answer: answer.interrupted)

    async def run(self, context_id: str, cell: CellCode) -> RemoteCells:
        """A cell."""
        return await self._begin({"op": "run", "context": context_id, **_asked(cell)})

    async def run_default(self, language: Language, env: dict[str, str], cell: CellCode) -> RemoteCells:
        """A cell of the language's own context."""
        words = self._words(NewContext(language=language, env=env), "run")
        return await self._begin(words | {"default": True, **_asked(cell)})


def _asked(cell: CellCode) -> dict[str, Any]:
    return {"code": cell.code, "timeout": cell.timeout_ms, "cellEnv": cell.env}


def _one(answer: _Answer) -> ContextFacts | None:
    return None if answer.context is None else _facts(answer.context)


def _all(answer: _Answer) -> list[ContextFacts] | None:
    found = answer.contexts
    if found is None or len(found) > MOST_CONTEXTS:
        return None
    return [_facts(one) for one in found]


def _facts(told: _Facts) -> ContextFacts:
    if not (0 <= told.created < 1 << 43 and 0 <= told.used < 1 << 43 and len(told.cwd) <= 4096):
        raise broken("a context with impossible facts")
    if len(told.id) > 64 or (told.ended is not None and len(told.ended) > 16):
        raise broken("a context with impossible facts")
    return ContextFacts(
        told.id, told.language, told.cwd, told.state, told.created, told.used, told.execution_count, told.ended
    )
