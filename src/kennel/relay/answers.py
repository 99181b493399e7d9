"""Owns what a guest may say about a call: its EXIT, its ERROR; checked field by field.

Called by call and link. Invariant: a guest can choose neither an error outside of its own list nor a value of another
type or size than the contract's.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

from kennel.guest.framing import FrameError
from kennel.wire.errors import Admitted, KennelError, error

GUEST_CODES = frozenset(
    {
        *("INVALID_COMMAND", "INVALID_PROCESS_CWD", "INVALID_PROCESS_ENVIRONMENT", "INVALID_USER"),
        *("PROCESS_SPAWN_FAILED", "NOT_SUPPORTED", "RESOURCE_BUSY", "INTERNAL_ERROR"),
        *("SESSION_NOT_FOUND", "SESSION_ALREADY_EXISTS", "SESSION_TERMINATED", "SESSION_DESTROYED"),
        *("FILE_NOT_FOUND", "FILE_EXISTS", "FILE_TOO_LARGE", "FILESYSTEM_ERROR", "IS_DIRECTORY", "NOT_DIRECTORY"),
        *("PERMISSION_DENIED", "READ_ONLY", "NO_SPACE", "NAME_TOO_LONG", "TOO_MANY_FILES", "TOO_MANY_LINKS"),
        *("PATH_TOO_LONG", "INVALID_PATH", "WATCH_START_ERROR", "WATCH_NOT_FOUND", "OPERATION_INTERRUPTED"),
        *("VALIDATION_FAILED", "PROCESS_NOT_FOUND", "PROCESS_ALREADY_EXISTS", "PROCESS_EXITED", "STALE_PROCESS_HANDLE"),
        *("PROCESS_EXITED_BEFORE_READY", "TERMINAL_NOT_FOUND", "STALE_TERMINAL_HANDLE", "INVALID_PORT"),
        *("SERVICE_NOT_RESPONDING", "INTERPRETER_NOT_READY", "CONTEXT_NOT_FOUND", "PACK_TOO_LARGE"),
    }
)
"""The errors a guest may answer with."""
_MOST_MESSAGE = 4000
_MOST_COUNT = 1 << 62
_MOST_PATH = 16 * 1024


def refusal(body: dict[str, Any], admitted: Admitted) -> KennelError:
    """The error of an ERROR frame."""
    code, message, details = body.get("code"), body.get("message"), body.get("details")
    if (
        type(code) is not str
        or code not in GUEST_CODES
        or type(message) is not str
        or type(details) not in (dict, type(None))
    ):
        raise FrameError("an error outside of the agreed ones")
    if details is not None and (len(details) > 16 or any(not _small(value) for value in details.values())):
        raise FrameError("details outside of the agreed size")
    if details is not None:
        details = {clean(name): clean(value) if type(value) is str else value for name, value in details.items()}
    return error(code, clean(message[:_MOST_MESSAGE]), details=details, admitted=admitted)


def about(reason: KennelError, admitted: Admitted) -> KennelError:
    """The reason a link ended, as one of its calls hears it."""
    return error(
        reason.code,
        reason.message,
        details=reason.details,
        hint=reason.hint,
        admitted=admitted,
        retry_after_ms=reason.retry_after_ms,
    )


def _small(value: object) -> bool:
    return type(value) in (int, bool, type(None)) or (type(value) is str and len(value) <= _MOST_MESSAGE)


@dataclass(frozen=True, slots=True)
class Exit:
    """The EXIT of a command."""

    code: int
    signal: str | None
    timed_out: bool
    stdout_bytes: int
    stderr_bytes: int
    stdout_truncated: bool
    stderr_truncated: bool
    duration_ms: float
    cwd: str | None

    @classmethod
    def read(cls, body: dict[str, Any]) -> Exit:
        """Checks an EXIT; FrameError when a field is missing or not what it should be."""
        number, cwd = body.get("signal"), body.get("cwd")
        if cwd is not None and (type(cwd) is not str or len(cwd) > _MOST_PATH):
            raise FrameError("an exit with an impossible cwd")
        duration: Any = body.get("duration_ms")
        if type(duration) not in (int, float) or not 0 <= duration < 1e15:
            raise FrameError("an exit with an impossible duration")
        return cls(
            code=_whole(body, "code", 255),
            signal=None if number is None else signal_name(_whole(body, "signal", 64)),
            timed_out=_flag(body, "timed_out"),
            stdout_bytes=_whole(body, "stdout_bytes", _MOST_COUNT),
            stderr_bytes=_whole(body, "stderr_bytes", _MOST_COUNT),
            stdout_truncated=_flag(body, "stdout_truncated"),
            stderr_truncated=_flag(body, "stderr_truncated"),
            duration_ms=float(duration),
            cwd=None if cwd is None else clean(cwd),
        )


def overdue(seconds: float) -> Exit:
    """The end of a command whose guest did not say in time that it ended."""
    return Exit(124, None, True, 0, 0, False, False, seconds * 1000, None)


def signal_name(number: int) -> str:
    """SIGKILL for 9; real-time signals as SIGRTMIN+n."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def clean(text: str) -> str:
    """The text with U+FFFD for what is no character: half surrogates would fail in every encoder after us."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _whole(body: dict[str, Any], name: str, most: int) -> int:
    value = body.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise FrameError(f"an exit with an impossible {name}")
    return value


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if type(value) is not bool:
        raise FrameError(f"an exit with an impossible {name}")
    return value


def texts(body: dict[str, Any], name: str, most: int) -> list[str]:
    """A list of at most `most` short texts in a RESULT."""
    value = body.get(name)
    if type(value) is not list or len(value) > most or any(type(item) is not str for item in value):
        raise FrameError(f"a result with an impossible {name}")
    return [clean(item) for item in value if len(item) <= _MOST_MESSAGE]


def state(body: dict[str, Any]) -> dict[str, Any]:
    """A session's directory and exported variables in a RESULT; names and values are texts, not checked further."""
    cwd, env = body.get("cwd"), body.get("env")
    if type(cwd) is not str or len(cwd) > _MOST_PATH or type(env) is not dict:
        raise FrameError("a state that is none")
    if any(type(value) is not str for value in env.values()):
        raise FrameError("a state with impossible variables")
    return {"cwd": clean(cwd), "env": {clean(name): clean(value) for name, value in env.items()}}
