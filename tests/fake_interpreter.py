"""Owns a scripted stand-in for code contexts, for tests of the API alone: one Python context, whose cells print."""

from __future__ import annotations

from typing import Any

from kennel.control.code_stream import CodeStream
from kennel.domain.code import CellCode, ContextFacts, NewContext
from kennel.wire.errors import error

CONTEXT = "00ff00ff-0123456789abcdef"


def context(**changes: Any) -> ContextFacts:
    """A plausible context."""
    fields: dict[str, Any] = {
        "id": CONTEXT, "language": "python", "cwd": "/workspace", "state": "idle", "created": 1_700_000_000_000,
        "used": 1_700_000_001_000, "execution_count": 1,
    }  # fmt: skip
    return ContextFacts(**{**fields, **changes})


RUN = "0" * 16


class FakeCells:
    """Every run is over."""

    def find(self, project: str, path: str, name: str) -> CodeStream:
        raise error("COMMAND_NOT_FOUND", "no such cell is followed here, or it ended a while ago")


def cell(linger: float) -> CodeStream:
    """A cell that has printed and ended."""
    stream = CodeStream(linger=linger)
    stream.id = RUN
    stream.tell("start", body={"contextId": CONTEXT, "executionCount": 1, "runId": RUN})
    stream.tell("stdout", body={"text": "out\n"})
    stream.tell("end", body={
        "executionCount": 1, "status": "ok", "timedOut": False, "interrupted": False, "truncated": False,
        "droppedBytes": 0, "durationMs": 1.5,
    })  # fmt: skip
    return stream


class FakeInterpreter:
    """Knows the default contexts and none other."""

    def __init__(self) -> None:
        self.cells = FakeCells()

    async def create(self, who: Any, project: str, path: str, asked: NewContext) -> ContextFacts:
        return context(language=asked.language, cwd=asked.cwd)

    async def list(self, project: str, path: str) -> list[ContextFacts]:
        return [context()]

    async def get(self, project: str, path: str, context_id: str) -> ContextFacts:
        self._known(context_id)
        return context()

    async def delete(self, who: Any, project: str, path: str, context_id: str) -> None:
        self._known(context_id)

    async def interrupt(self, project: str, path: str, context_id: str) -> bool:
        self._known(context_id)
        return False

    async def run(
        self, who: Any, project: str, path: str, context_id: str, asked: CellCode, *, linger: float
    ) -> CodeStream:
        self._known(context_id)
        return cell(linger)

    def _known(self, context_id: str) -> None:
        if context_id != "python":
            raise error("CONTEXT_NOT_FOUND", "there is no such context", admitted="no")
