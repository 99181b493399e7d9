"""What control needs of the code contexts of one running sandbox; `relay` provides it.

Invariant: every answer is checked before anybody sees it; a run ends with `end`, or raises why it came to nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from kennel.domain.code import CellCode, ContextFacts, EventKind, Language, NewContext


class Cells(Protocol):
    """A cell in progress: its events, the last of them `end`; `close` interrupts what still runs."""

    def __aiter__(self) -> AsyncIterator[tuple[EventKind, dict[str, Any]]]: ...
    async def close(self) -> None: ...


class GuestInterpreter(Protocol):
    """The contexts; an id may be a language's name, for its default context."""

    async def create(self, asked: NewContext) -> ContextFacts:
        """PYTHON_NOT_AVAILABLE, JAVASCRIPT_NOT_AVAILABLE, NOT_SUPPORTED, INVALID_PROCESS_CWD, RESOURCE_BUSY."""

    async def list(self) -> list[ContextFacts]: ...
    async def get(self, context_id: str) -> ContextFacts: ...
    async def delete(self, context_id: str) -> ContextFacts: ...
    async def interrupt(self, context_id: str) -> bool:
        """Whether a cell ran."""

    async def run(self, context_id: str, cell: CellCode) -> Cells:
        """A cell of that context; CONTEXT_NOT_FOUND, CONTEXT_TERMINATED, as its events begin."""

    async def run_default(self, language: Language, env: dict[str, str], cell: CellCode) -> Cells:
        """A cell of a language's default context, which is made on first use, with `env`."""
