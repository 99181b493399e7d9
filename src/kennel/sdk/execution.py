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

from kennel.wire.errors import error

DEFAULT_MAX_BYTES = 16 * 1024 * 1024
"""Bytes kept of each output stream unless said otherwise, as on the server."""


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
    given, stdin_encoding = stdin, None
    if isinstance(stdin, bytes):
        given, stdin_encoding = base64.b64encode(stdin).decode("ascii"), "base64"
    body = {
        "command": command,
        "argv": None if argv is None else list(argv),
        "cwd": cwd,
        "env": None if env is None else dict(env),
        "stdin": given,
        "stdinEncoding": stdin_encoding,
        "timeout": None if timeout is None else milliseconds(timeout),
        "user": user,
        "sessionId": session_id,
        "encoding": None if encoding == "utf8" else encoding,
        "maxBytes": max_bytes,
    }
    return {key: value for key, value in body.items() if value is not None}


def milliseconds(seconds: float) -> int:
    """Whole milliseconds, at least one; VALIDATION_FAILED unless it is a positive, finite number of seconds."""
    if not (isinstance(seconds, int | float) and math.isfinite(seconds) and seconds > 0):
        raise error("VALIDATION_FAILED", f"a timeout is a positive number of seconds, not {seconds!r}")
    return max(1, round(seconds * 1000))


def output_bytes(text: str, encoding: str) -> bytes:
    """The bytes of one output stream of a result; PROTOCOL_VIOLATION when base64 was promised and is not there."""
    if encoding != "base64":
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as failure:
        raise error("PROTOCOL_VIOLATION", "the server's base64 is not base64", admitted="yes") from failure
