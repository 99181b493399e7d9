# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns what runs in a sandbox beyond one call, as programs use it: followed commands, processes, terminals.

Part of the sandbox's handle. Invariant: looking (lists, states) wakes nothing; what is started is started once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kennel.sdk._sync.exec_stream import ExecStream, Interaction
from kennel.sdk._sync.process import GRACE, Process
from kennel.sdk._sync.terminal import Terminal
from kennel.sdk._sync.transport import Transport
from kennel.sdk.answers import encoded
from kennel.sdk.execution import exec_body, milliseconds
from kennel.sdk.names import segment
from kennel.sdk.running import (
    Killed,
    ProcessInfo,
    ProcessList,
    TerminalInfo,
    TerminalList,
)
from kennel.wire.errors import KennelError

LINGER = 15.0
"""Seconds a followed command outlives a connection that broke."""


class RunningMethods:
    """The part of a sandbox's handle that is about what runs in it."""

    _transport: Transport
    _route: str

    def exec_stream(
        self,
        command: str | None = None,
        *,
        argv: Sequence[str] | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        timeout: float | None = None,
        user: str | None = None,
        session_id: str | None = None,
        encoding: str = "utf8",
        linger: float = LINGER,
    ) -> ExecStream:
        """An iterator over a command's events while it runs: `start`, `stdout` and `stderr`, then `exit`.

        A connection that breaks is made again and nothing lost, while the command goes on for `linger` seconds (0: it
        ends with its connection). Leaving the iteration early (`close`, a `with` block) kills the command.
        """
        body = exec_body(
            command, argv=argv, cwd=cwd, env=env, stdin=stdin, timeout=timeout, user=user, session_id=session_id,
            encoding=encoding, max_bytes=None,
        )  # fmt: skip
        if linger > 0:
            body["linger"] = milliseconds(linger)
        return ExecStream(self._transport, self._route, body)

    def interact(
        self,
        command: str | None = None,
        *,
        argv: Sequence[str] | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        user: str | None = None,
        session_id: str | None = None,
    ) -> Interaction:
        """Starts a command with live input, output in bytes; use it in a `with` block. Leaving kills it."""
        body = exec_body(
            command, argv=argv, cwd=cwd, env=env, stdin=None, timeout=timeout, user=user, session_id=session_id,
            encoding="utf8", max_bytes=None,
        )  # fmt: skip
        encoded(body)  # what cannot be sent is refused before anything is
        socket = self._transport.socket(f"{self._route}/exec", {})
        socket.send(body)
        return Interaction(socket)

    # --- processes

    def start_process(
        self,
        command: str | None = None,
        *,
        argv: Sequence[str] | None = None,
        process_id: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        user: str | None = None,
        stdin: bool = False,
        keep_awake: bool = False,
    ) -> Process:
        """Starts a process that outlives this call and this program; returns when it runs.

        `stdin` keeps its input open for `write_stdin`; `keep_awake` keeps the sandbox from falling asleep by itself
        while it runs. Without an own `process_id` it is given one.
        """
        body = exec_body(
            command, argv=argv, cwd=cwd, env=env, stdin=None, timeout=timeout, user=user, session_id=None,
            encoding="utf8", max_bytes=None,
        )  # fmt: skip
        given = {"id": process_id, "stdin": stdin or None, "keepAwake": keep_awake or None}
        body |= {name: value for name, value in given.items() if value is not None}
        info = self._transport.call("POST", f"{self._route}/processes", ProcessInfo, body=body)
        return Process(self._transport, self._route, info)

    def list_processes(self) -> list[Process]:
        """Those that run and the last 64 that ended; none while it sleeps."""
        found = self._transport.call("GET", f"{self._route}/processes", ProcessList, repeat=True)
        return [Process(self._transport, self._route, info) for info in found.processes]

    def get_process(self, process_id: str) -> Process | None:
        """A handle on one; None when there is none."""
        try:
            info = self._transport.call(
                "GET", f"{self._route}/processes/{segment(process_id)}", ProcessInfo, repeat=True
            )
        except KennelError as failure:
            if failure.code == "PROCESS_NOT_FOUND":
                return None
            raise
        return Process(self._transport, self._route, info)

    def kill_all_processes(self, *, grace: float = GRACE) -> int:
        """Ends every process and all they started; how many ran."""
        query = {"graceMs": str(max(0, round(grace * 1000)))}
        route = f"{self._route}/processes"
        return (self._transport.call("DELETE", route, Killed, query=query, extra=grace)).killed

    # --- terminals

    def terminal(
        self,
        terminal_id: str = "main",
        *,
        cols: int = 80,
        rows: int = 24,
        since: int | None = None,
        mode: str = "drive",
        argv: Sequence[str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        runtime: str | None = None,
    ) -> Terminal:
        """Attaches to a terminal, opening it with a shell (or `argv`) when there is none.

        `mode` "watch" only looks; "drive" takes over from whoever drives. `since` is a position to go on from.
        """
        query: dict[str, str] = {"cols": str(cols), "rows": str(rows), "mode": mode}
        more = {"since": None if since is None else str(since), "cwd": cwd, "user": user, "runtime": runtime}
        query |= {name: value for name, value in more.items() if value is not None}
        words = [*query.items(), *(("argv", word) for word in argv or ())]
        socket = self._transport.socket(f"{self._route}/terminals/{segment(terminal_id)}", words)
        return Terminal(socket, since or 0)

    def list_terminals(self) -> list[TerminalInfo]:
        """Those that are open and the last 25 that ended; none while it sleeps."""
        found = self._transport.call("GET", f"{self._route}/terminals", TerminalList, repeat=True)
        return found.terminals

    def close_terminal(self, terminal_id: str) -> None:
        """Hangs up on what runs on it."""
        route = f"{self._route}/terminals/{segment(terminal_id)}"
        self._transport.call("DELETE", route, TerminalInfo, repeat=True)
