"""What control needs from a guest for what outlives a call: processes, terminals, connections to ports.

`relay` provides it. Invariant: every answer is checked before anybody sees it; what is followed is bounded by a window
and ends with the guest in a typed error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from kennel.domain.command import Command
from kennel.domain.process import LogPiece, ProcessEnd, ProcessFacts, TerminalExit, TerminalFacts


class Log(Protocol):
    """A process's log, being read: `facts` as it began, pieces with their positions, then the facts at its end."""

    facts: ProcessFacts

    def __aiter__(self) -> AsyncIterator[LogPiece]: ...
    async def close(self) -> None: ...


class Screen(Protocol):
    """An attachment to a terminal: bytes to show, and dictionaries to be told beside them."""

    facts: TerminalFacts
    at: int
    missed: int
    drives: bool

    def __aiter__(self) -> AsyncIterator[bytes | dict[str, Any]]: ...
    async def ending(self) -> TerminalExit: ...
    async def write(self, data: bytes) -> None: ...
    async def close(self) -> None: ...


class Wire(Protocol):
    """A TCP connection to a port of the sandbox."""

    async def read(self) -> bytes:
        """What comes next; empty at the end."""

    async def write(self, data: bytes) -> None: ...
    async def finish(self) -> None:
        """No more will be written."""

    async def close(self) -> None: ...


class GuestProcesses(Protocol):
    """Background processes; `runtime` pins a call to one run of the sandbox (STALE_PROCESS_HANDLE)."""

    async def start(
        self, command: Command, *, process_id: str | None, stdin: bool, keep_awake: bool
    ) -> ProcessFacts: ...
    async def list(self) -> list[ProcessFacts]: ...
    async def get(self, process_id: str, runtime: str | None = None) -> ProcessFacts: ...
    async def kill(self, process_id: str, grace_ms: int | None, runtime: str | None = None) -> ProcessFacts: ...
    async def kill_all(self, grace_ms: int | None) -> int: ...
    async def signal(self, process_id: str, number: int, runtime: str | None = None) -> ProcessFacts: ...
    async def log(self, process_id: str, since: int, *, follow: bool, runtime: str | None = None) -> Log: ...
    async def feed(self, process_id: str, data: bytes, *, eof: bool, runtime: str | None = None) -> int: ...
    async def wait(self, process_id: str, words: dict[str, Any], runtime: str | None = None) -> dict[str, Any]:
        """`words` begin with `for`: `exit`, `log` or `port`; the guest's answer, checked."""

    async def wait_for_port(self, words: dict[str, Any]) -> dict[str, Any]: ...
    async def awake(self) -> None:
        """Comes back when no process asks any more for the sandbox to stay awake."""

    async def ended(self, since: int) -> tuple[Sequence[ProcessEnd], int]:
        """The ends after number `since`, as soon as there is one, and the number of the last."""


class GuestTerminals(Protocol):
    """Terminals."""

    async def open(
        self, terminal_id: str | None, words: dict[str, Any], runtime: str | None = None
    ) -> tuple[TerminalFacts, bool]:
        """The terminal, and whether it is new."""

    async def list(self) -> list[TerminalFacts]: ...
    async def attach(
        self, terminal_id: str, *, since: int | None, drive: bool, runtime: str | None = None
    ) -> Screen: ...
    async def resize(self, terminal_id: str, columns: int, rows: int) -> None: ...
    async def close(self, terminal_id: str) -> TerminalFacts: ...
