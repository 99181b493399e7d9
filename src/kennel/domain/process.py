"""Owns what is known of a background process or a terminal in a sandbox, and how the wire shows it; no I/O.

Called by relay, control and the API. Invariant: a state is `running`, `exited` with an exit, or `error` with a reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

ProcessState = Literal["running", "exited", "error"]


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How it ended: 128 + n for signal n; 124 when its time ran out."""

    code: int
    signal: str | None
    timed_out: bool = False

    def to_wire(self) -> dict[str, Any]:
        """As JSON."""
        return {"code": self.code, "signal": self.signal, "timedOut": self.timed_out}


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """A process. Times are milliseconds since 1970, log positions count every byte it wrote; `runtime` names the
    sandbox's run that it belongs to."""

    id: str
    command: str
    cwd: str
    state: ProcessState
    pid: int
    began: int
    over: int | None
    exit: ProcessExit | None
    error: tuple[str, str] | None
    keep_awake: bool
    first: int
    last: int
    runtime: str

    def to_wire(self) -> dict[str, Any]:
        """As JSON."""
        error = self.error
        return {
            "id": self.id,
            "command": self.command,
            "cwd": self.cwd,
            "status": self.state,
            "pid": self.pid or None,
            "startTime": _time(self.began),
            "endTime": None if self.over is None else _time(self.over),
            "exit": None if self.exit is None else self.exit.to_wire(),
            "error": None if error is None else {"code": error[0], "message": error[1]},
            "keepAwake": self.keep_awake,
            "logs": {"first": self.first, "next": self.last},
            "runtime": self.runtime,
        }


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a process ended, for the log; `exit` None: it was never started."""

    id: str
    began: int
    over: int
    exit: ProcessExit | None


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A piece of a log; `at` is the position of its first byte. `stream` None: `missed` bytes are no longer kept."""

    at: int
    stream: Literal["stdout", "stderr"] | None
    data: bytes = b""
    missed: int = 0

    @property
    def next(self) -> int:
        """The position after it."""
        return self.at + len(self.data)


@dataclass(frozen=True, slots=True)
class TerminalFacts:
    """A terminal and the program on it."""

    id: str
    command: str
    cwd: str
    state: ProcessState
    pid: int
    exit: ProcessExit | None
    columns: int
    rows: int
    first: int
    last: int
    attached: int
    runtime: str

    def to_wire(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "id": self.id,
            "command": self.command,
            "cwd": self.cwd,
            "status": self.state,
            "pid": self.pid or None,
            "exit": None if self.exit is None else self.exit.to_wire(),
            "cols": self.columns,
            "rows": self.rows,
            "output": {"first": self.first, "next": self.last},
            "attached": self.attached,
            "runtime": self.runtime,
        }


@dataclass(frozen=True, slots=True)
class TerminalExit:
    """The end of an attachment: how the terminal's program ended, or None when only the attachment did."""

    exit: ProcessExit | None


def _time(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
