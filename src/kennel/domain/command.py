"""Owns what a caller asks a sandbox to run, and what came of it, as bytes; no wire shape, no I/O.

Invariant: exactly one of `command` (a shell's text) and `argv` (no shell) is set, and an outcome always has an
exit code: 128 + n when signal n ended the program, 124 when its time ran out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

DEFAULT_CWD = "/workspace"
DEFAULT_MAX_BYTES = 16 * 1024 * 1024
TIMEOUT_EXIT = 124


@dataclass(frozen=True, slots=True)
class Command:
    """One run: `timeout_ms` milliseconds or None for no limit; `max_bytes` kept per output stream (the head).

    `env` is the whole environment on top of the guest's own minimal one (PATH, HOME, LANG); `user` is a
    name, a uid, or `uid:gid` inside the sandbox; `session_id` runs it in that persistent shell instead. No `cwd` means
    DEFAULT_CWD, and in a session where its shell is.
    """

    command: str | None = None
    argv: tuple[str, ...] | None = None
    cwd: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    timeout_ms: int | None = None
    user: str | None = None
    session_id: str | None = None
    max_bytes: int = DEFAULT_MAX_BYTES


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `*_bytes` count everything the program wrote, kept or not; `duration_ms` is wall time."""

    stdout: bytes
    stderr: bytes
    exit_code: int
    signal: str | None = None
    timed_out: bool = False
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    duration_ms: float = 0.0
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of live output; `sequence` rises by one over stdout and stderr together."""

    sequence: int
    stream: Literal["stdout", "stderr"]
    data: bytes
