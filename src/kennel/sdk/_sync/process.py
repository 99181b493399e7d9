# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns the handle on one background process: its state, its log, waits for it, its end.

Called by programs through `box.start_process()` and `box.get_process(id)`. Invariant: a handle belongs to the run of
the sandbox in which its process was started; afterwards it is stale and says so (STALE_PROCESS_HANDLE), and never means
another process that has the same id.
"""

from __future__ import annotations

import re
from typing import TypeVar

from kennel.sdk._sync.following import Following
from kennel.sdk._sync.transport import Transport
from kennel.sdk.deadline import SLICE, Deadline
from kennel.sdk.names import segment
from kennel.sdk.running import LogEvent, LogLine, PortReady, ProcessInfo, ProcessLogs, Taken, log_event
from kennel.wire.errors import KennelError, error

T = TypeVar("T")
_FOREVER = 365 * 24 * 3600.0
_LATE = ("PROCESS_WAIT_TIMEOUT", "PROCESS_READY_TIMEOUT")
GRACE = 5.0


class Process:
    """One process, by its id; `info` is what was known of it when the handle was made."""

    def __init__(self, transport: Transport, route: str, info: ProcessInfo) -> None:
        self._transport = transport
        self._route = f"{route}/processes/{segment(info.id)}"
        self.info = info
        self.id = info.id
        self.pid = info.pid
        self.command = info.command

    def __repr__(self) -> str:
        return f"Process({self.id!r})"

    @property
    def _query(self) -> dict[str, str]:
        return {"runtime": self.info.runtime} if self.info.runtime else {}

    def get_status(self) -> ProcessInfo:
        """What it is now."""
        self.info = self._transport.call("GET", self._route, ProcessInfo, query=self._query, repeat=True)
        return self.info

    def kill(self, signal: str | int | None = None, *, grace: float = GRACE) -> ProcessInfo:
        """Ends it and all it started: asks, kills what is left after `grace` seconds, and returns when it is gone.

        With a `signal` only that is sent, to every process of it, and nothing waited for. One that has ended stays as
        it is.
        """
        if signal is not None:
            return self.signal(signal)
        query = {**self._query, "graceMs": str(max(0, round(grace * 1000)))}
        return self._transport.call(
            "DELETE", self._route, ProcessInfo, query=query, extra=grace, repeat=True
        )  # fmt: skip

    def signal(self, signal: str | int) -> ProcessInfo:
        """Sends a signal by name or number to every process of it."""
        body = {"signal": signal}
        return self._transport.call("POST", f"{self._route}/signal", ProcessInfo, body=body, query=self._query)

    def write_stdin(self, data: str | bytes, *, eof: bool = False) -> int:
        """Writes to its input (`stdin=True` at the start) and returns when it has read that."""
        import base64

        given = data.encode() if isinstance(data, str) else data
        body = {"data": base64.b64encode(given).decode("ascii"), "encoding": "base64", "eof": eof}
        answer = self._transport.call("POST", f"{self._route}/stdin", Taken, body=body, query=self._query, extra=None)
        return answer.bytes

    def close_stdin(self) -> None:
        """It sees the end of its input."""
        self.write_stdin(b"", eof=True)

    def get_logs(self, since: int = 0) -> ProcessLogs:
        """What is kept of its output (the last mebibyte), from a position on."""
        query = {**self._query, "since": str(since)}
        return self._transport.call("GET", f"{self._route}/logs", ProcessLogs, query=query, repeat=True)

    def stream_logs(self, since: int = 0) -> Following[LogEvent]:
        """An iterator over its output, what is kept first, then what comes; every byte once. Ends after `exit`."""
        query = {**self._query, "since": str(since), "follow": "true", "encoding": "base64"}
        return Following(
            self._transport, f"{self._route}/logs", query, log_event, resume=True, last=lambda e: e.type == "exit"
        )

    def wait_for_exit(self, timeout: float | None = None) -> ProcessInfo:
        """Its end; PROCESS_WAIT_TIMEOUT after `timeout` seconds, which does not end it."""
        return self._wait({"exit": ""}, ProcessInfo, timeout)

    def wait_for_log(
        self, pattern: str | re.Pattern[str], timeout: float | None = None, *, since: int = 0, stream: str | None = None
    ) -> LogLine:
        """The first line that holds a text, or in which a compiled pattern is found; what was written before counts.

        PROCESS_EXITED_BEFORE_READY when it ends first. The server searches in linear time: a pattern has no back
        references and looks around nothing.
        """
        if isinstance(pattern, str):
            query = {"log": pattern}
        else:
            query = {"pattern": ("(?i)" if pattern.flags & re.IGNORECASE else "") + pattern.pattern}
        if stream is not None:
            query["stream"] = stream
        return self._wait({**query, "since": str(since)}, LogLine, timeout)

    def wait_for_port(
        self,
        port: int,
        timeout: float | None = None,
        *,
        mode: str = "tcp",
        path: str = "/",
        status: str | None = None,
        interval: float = 0.1,
    ) -> PortReady:
        """Until the port accepts connections, or (`mode="http"`) answers with a status such as "200" or "200-399"."""
        query = {"port": str(port), "mode": mode, "path": path, "intervalMs": str(max(10, round(interval * 1000)))}
        return self._wait(query | ({} if status is None else {"status": status}), PortReady, timeout)

    def _wait(self, query: dict[str, str], shape: type[T], timeout: float | None) -> T:
        deadline = Deadline(_FOREVER if timeout is None else timeout)
        while True:
            asked = {**self._query, **query, "timeoutMs": deadline.slice()}
            try:
                return self._transport.call("GET", f"{self._route}/wait", shape, query=asked, extra=SLICE, repeat=True)
            except KennelError as failure:
                if failure.code not in _LATE:
                    raise
                if deadline.over:
                    message = f"{self.id} was waited for {deadline.seconds:g} s"
                    raise error(failure.code, message, details=failure.details, admitted="yes") from None
