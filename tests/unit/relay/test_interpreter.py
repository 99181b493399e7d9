"""What the program that keeps the contexts says is checked: it is the sandbox's own, or whoever took its place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest

from kennel.domain.code import CellCode, NewContext
from kennel.relay.interpreter import MOST_CELL, MOST_LINE, RemoteInterpreter
from kennel.wire.errors import KennelError

START = {"event": "start", "contextId": "c", "executionCount": 1}
END = {
    "event": "end", "executionCount": 1, "status": "ok", "timedOut": False, "interrupted": False, "droppedBytes": 0,
    "durationMs": 1.5,
}  # fmt: skip
FACTS = {
    "id": "c-1", "language": "python", "cwd": "/", "state": "idle", "created": 1, "used": 2, "executionCount": 0,
}  # fmt: skip


class Conversation:
    """A transfer that answers with these bytes, in these pieces."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self.asked = b""
        self.closed = False

    async def head(self) -> dict[str, Any]:
        return {}

    async def write(self, data: bytes) -> None:
        self.asked += data

    def __aiter__(self) -> Conversation:
        return self

    async def __anext__(self) -> bytes:
        for piece in self._pieces:
            return piece
        raise StopAsyncIteration

    async def close(self) -> None:
        self.closed = True


class Link:
    runtime = "0123456789abcdef"
    look = True

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.conversation = Conversation(pieces)

    def transfer(self, op: str, args: dict[str, Any]) -> Any:
        assert op == "interpreter"
        self.look = args["look"]
        return self.conversation


def lines(*events: Any) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def run(pieces: Iterable[bytes]) -> list[tuple[str, dict[str, Any]]]:
    async def gather() -> list[tuple[str, dict[str, Any]]]:
        cells = await RemoteInterpreter(Link(pieces)).run("c", CellCode("1", 1000))
        return [event async for event in cells]

    return asyncio.run(gather())


def refused(pieces: Iterable[bytes]) -> KennelError:
    with pytest.raises(KennelError) as failure:
        run(pieces)
    return failure.value


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_events_are_the_same_however_they_are_cut(size: int) -> None:
    result = {"event": "result", "main": True, "data": {"text/plain": "2"}, "omitted": ["a"]}
    whole = lines(START, {"event": "stdout", "text": "é"}, result, END)
    found = run(whole[at : at + size] for at in range(0, len(whole), size))
    assert [kind for kind, _ in found] == ["start", "stdout", "result", "end"]
    assert found[1][1] == {"text": "é"}
    assert found[2][1] == {"text": "2", "main": True, "omitted": ["a"]}
    assert found[3][1]["truncated"] is False


@pytest.mark.parametrize(
    "said",
    [
        b"no json\n",
        lines({"event": "unknown"}),
        lines({"event": "stdout", "text": 5}),
        lines({"event": "result", "main": True, "data": []}),
        lines({"event": "end"}),
        lines({**END, "status": "fine"}),
        lines([1]),
        lines(START),
        lines({"event": "answer", "interrupted": True}),
        b"",
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
    ],
)
def test_anything_else_ends_the_call(said: bytes) -> None:
    assert refused([said]).code == "INTERPRETER_NOT_READY"


def test_a_flood_ends_the_call_in_bounded_memory() -> None:
    assert refused(b"x" * (1 << 20) for _ in range(2 * MOST_LINE >> 20)).code == "INTERPRETER_NOT_READY"
    line = lines({"event": "stdout", "text": "x" * (1 << 20)})
    assert refused(line for _ in range(2 * MOST_CELL >> 20)).code == "INTERPRETER_NOT_READY"


@pytest.mark.parametrize(
    ("said", "code", "admitted"),
    [("CONTEXT_TERMINATED", "CONTEXT_TERMINATED", "yes"), ("RESOURCE_BUSY", "RESOURCE_BUSY", "no"),
     ("SANDBOX_DESTROYED", "CODE_EXECUTION_ERROR", "yes"), ("", "CODE_EXECUTION_ERROR", "yes")],
)  # fmt: skip
def test_a_failure_has_one_of_the_agreed_codes(said: str, code: str, admitted: str) -> None:
    told = {"event": "failure", "code": said, "message": "m" * 10_000, "details": {"exitCode": 3, "hint": "do"}}
    failure = refused([lines(told)])
    assert (failure.code, failure.admitted, failure.hint) == (code, admitted, "do")
    assert failure.details == {"exitCode": 3}
    assert len(failure.message) == 2000


def test_a_context_is_made_for_this_run_of_the_sandbox() -> None:
    link = Link([lines({"event": "answer", "context": FACTS})])
    facts = asyncio.run(RemoteInterpreter(link).create(NewContext(cwd="/tmp", env={"A": "b"})))
    assert (facts.id, facts.state) == ("c-1", "idle")
    asked = json.loads(link.conversation.asked)
    assert (asked["prefix"], asked["cwd"], asked["env"]) == ("c-01234567-", "/tmp", {"A": "b"})
    assert link.conversation.closed
    assert not link.look


@pytest.mark.parametrize(
    "facts", [{**FACTS, "created": 1 << 60}, {**FACTS, "cwd": "x" * 5000}, {**FACTS, "language": "perl"}, None]
)
def test_impossible_contexts_end_the_call(facts: Any) -> None:
    link = Link([lines({"event": "answer", "context": facts})])
    with pytest.raises(KennelError) as failure:
        asyncio.run(RemoteInterpreter(link).get("c"))
    assert failure.value.code == "INTERPRETER_NOT_READY"
