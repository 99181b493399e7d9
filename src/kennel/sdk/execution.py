"""Owns how a command is put into a request and its output taken out of the answer.

Called by both halves of the SDK. Invariant: bytes given as stdin and bytes asked for as base64 are exact in both
directions; times are seconds for callers and milliseconds on the wire.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kennel.wire.errors import error
from kennel.wire.results import ExecResult


def exec_body(
    command: str | None,
    *,
    argv: Sequence[str] | None,
    cwd: str | None,
    env: Mapping[str, str] | None,
    stdin: str | bytes | None,
    timeout: float | None,
    user: str | None,
    session_id: str | None,
    encoding: str,
    max_bytes: int | None,
) -> dict[str, Any]:
    """The request's body, without what was not given; VALIDATION_FAILED for what cannot be sent."""
    if (command is None) == (argv is None):
        raise error("VALIDATION_FAILED", "give either a command for the shell or argv", hint='exec("ls -l")')
    if isinstance(argv, str):
        raise error("VALIDATION_FAILED", "argv is a list of words, not text", hint='exec(argv=["ls", "-l"])')
    if encoding not in ("utf8", "base64"):
        raise error("VALIDATION_FAILED", f"encoding is 'utf8' or 'base64', not {encoding!r}")
    wire_encoding = "base64" if isinstance(stdin, bytes) or encoding == "base64" else None
    if stdin is not None and wire_encoding:
        raw = stdin if isinstance(stdin, bytes) else stdin.encode()
        stdin = base64.b64encode(raw).decode("ascii")
    body = {
        "command": command,
        "argv": None if argv is None else list(argv),
        "cwd": cwd,
        "env": None if env is None else dict(env),
        "stdin": stdin,
        "timeout": None if timeout is None else milliseconds(timeout),
        "user": user,
        "sessionId": session_id,
        "encoding": wire_encoding,
        "maxBytes": max_bytes,
    }
    return {key: value for key, value in body.items() if value is not None}


def milliseconds(seconds: float) -> int:
    """Whole milliseconds, at least one; VALIDATION_FAILED unless it is a positive, finite number of seconds."""
    if not (isinstance(seconds, int | float) and math.isfinite(seconds) and seconds > 0):
        raise error("VALIDATION_FAILED", f"a timeout is a positive number of seconds, not {seconds!r}")
    return max(1, round(seconds * 1000))


def read_as_asked(answer: ExecResult, encoding: str) -> ExecResult:
    """The result in the encoding that the caller asked for, when bytes on stdin made the wire's another."""
    if answer.encoding == encoding or answer.encoding != "base64":
        return answer
    out, out_lossy = _text(answer.stdout)
    err, err_lossy = _text(answer.stderr)
    return msgspec.structs.replace(
        answer, stdout=out, stderr=err, encoding="utf8", lossy=answer.lossy or out_lossy or err_lossy
    )


def output_bytes(text: str, encoding: str) -> bytes:
    """The bytes of one output stream of a result; PROTOCOL_VIOLATION when base64 was promised and is not there."""
    if encoding != "base64":
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as failure:
        raise error("PROTOCOL_VIOLATION", "the server's base64 is not base64", admitted="yes") from failure


def _text(encoded: str) -> tuple[str, bool]:
    """Text of base64, and whether bytes that are not UTF-8 became U+FFFD."""
    raw = output_bytes(encoded, "base64")
    try:
        return raw.decode(), False
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace"), True
