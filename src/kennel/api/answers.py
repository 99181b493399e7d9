"""Owns how results become responses: JSON by msgspec, a finished command as the contract's result.

Called by the routes. Invariant: output bytes are exact in base64; as text, bytes that are not UTF-8 become U+FFFD and
`lossy` says so.
"""

from __future__ import annotations

import base64
import shlex
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.responses import Response

from kennel.domain.command import Command, Outcome
from kennel.wire.results import ExecResult

_encoder = msgspec.json.Encoder()


def json_response(value: Any, status: int = 200) -> Response:
    """Any value msgspec knows, as JSON."""
    return Response(_encoder.encode(value), status, media_type="application/json")


def now() -> str:
    """ISO 8601 in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(data: bytes) -> tuple[str, bool]:
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return data.decode(errors="replace"), True


def exec_result(
    command: Command, outcome: Outcome, *, oom_killed: bool, started: str, encoding: str = "utf8"
) -> ExecResult:
    """The result of a finished command; `started` is its timestamp, `encoding` is `utf8` or `base64`."""
    lossy = False
    if encoding == "base64":
        stdout, stderr = (base64.b64encode(data).decode() for data in (outcome.stdout, outcome.stderr))
    else:
        stdout, lossy_out = _text(outcome.stdout)
        stderr, lossy_err = _text(outcome.stderr)
        lossy = lossy_out or lossy_err
    return ExecResult(
        stdout=stdout,
        stderr=stderr,
        exit_code=outcome.exit_code,
        success=outcome.exit_code == 0,
        command=command.command if command.command is not None else shlex.join(command.argv or ()),
        duration=outcome.duration_ms,
        timestamp=started,
        duration_ms=outcome.duration_ms,
        signal=outcome.signal,
        timed_out=outcome.timed_out,
        truncated=outcome.stdout_truncated or outcome.stderr_truncated,
        lossy=lossy,
        oom_killed=oom_killed,
        encoding=encoding,
        stdout_bytes=outcome.stdout_bytes,
        stderr_bytes=outcome.stderr_bytes,
        session_id=command.session_id,
    )
