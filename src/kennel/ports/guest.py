"""What control needs from the guest of one running sandbox; `relay` provides it over the guest's socket.

Invariant: no call outlives the guest. When the link ends for any reason, every pending call raises within a
second an error whose `admitted` says whether the work was started.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from kennel.domain.command import Chunk, Command, Outcome
from kennel.ports.files import GuestFiles
from kennel.ports.interpreter import GuestInterpreter
from kennel.ports.processes import GuestProcesses, GuestTerminals, Wire
from kennel.wire.errors import KennelError


class Run(Protocol):
    """A command in progress: iterate it for live output, then `outcome`; leaving early does not kill it.

    `waiting` is the next piece if it is here; `begun` returns once it was started or refused and
    `check` raises the refusal; `finished` is the outcome
    that waits for all output to be iterated, `outcome` the one that gives the rest up.
    """

    def __aiter__(self) -> AsyncIterator[Chunk]: ...
    def waiting(self) -> Chunk | None: ...
    async def begun(self) -> None: ...
    async def check(self) -> None: ...
    async def finished(self) -> Outcome: ...
    async def outcome(self) -> Outcome: ...
    async def write(self, data: bytes) -> None: ...
    async def close_stdin(self) -> None: ...
    async def signal(self, number: int) -> None: ...
    async def kill(self) -> None: ...


class Guest(Protocol):
    """The guest of one sandbox, reached over one connection."""

    @property
    def closed(self) -> bool: ...

    @property
    def files(self) -> GuestFiles: ...

    @property
    def runtime(self) -> str: ...

    @property
    def processes(self) -> GuestProcesses: ...

    @property
    def terminals(self) -> GuestTerminals: ...

    @property
    def interpreter(self) -> GuestInterpreter: ...

    async def connect(self, port: int, host: str | None = None) -> Wire:
        """A connection to a port of the sandbox's loopback; SERVICE_NOT_RESPONDING when nothing accepts."""

    async def exec(self, command: Command) -> Outcome:
        """Runs it to its end; leaving the call kills it. In a session `env` and `cwd` hold for this call alone (the
        default `cwd` means the session's own), the user is the session's, and `Outcome.cwd` says where it is now."""

    async def run(self, command: Command) -> Run:
        """Starts it; its standard input stays open until `close_stdin`, its output waits to be iterated."""

    async def open_session(
        self, session_id: str, *, cwd: str, env: dict[str, str], user: str | None, replace: bool = False
    ) -> None:
        """Starts a persistent shell; with `replace`, one that exits gets a successor in its last directory with its
        last exported variables, without it the next call hears SESSION_TERMINATED once."""

    async def session_state(self, session_id: str) -> dict[str, Any]:
        """`{"cwd": path, "env": {name: value}}` as after the last command; what `open_session` takes to go on there."""

    async def close_session(self, session_id: str) -> None: ...
    async def list_sessions(self) -> list[str]: ...
    async def plant(self, env: dict[str, str]) -> None:
        """Variables that every command from now on is given, under the sandbox's and the command's own; until the
        guest ends or they are replaced."""

    async def ping(self) -> None: ...
    def abort(self, reason: KennelError) -> None: ...
    async def close(self) -> None: ...


OpenGuest = Callable[[socket.socket, float], Awaitable[Guest]]
"""(connected Unix stream socket, seconds to wait for the guest's hello) → Guest; relay's `open_guest`."""
