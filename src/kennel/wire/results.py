"""Owns the shapes of answers that API and SDK share; camelCase on the wire, snake_case in Python.

Invariant: fields are only ever added. A non-zero exit is a result, never an error.
"""

from __future__ import annotations

import msgspec


class ExecResult(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=False):
    """What a finished command left: output, exit code (128 + n for signal n), and how it ended.

    `duration` and `duration_ms` are milliseconds, `timestamp` is ISO 8601 in UTC. `stdout`/`stderr` are text
    (`lossy` says that bytes which are not UTF-8 became U+FFFD) or base64 when `encoding` is `base64`;
    `truncated` says that the program wrote more than `maxBytes` to that stream and the head was kept.
    """

    stdout: str
    stderr: str
    exit_code: int
    success: bool
    command: str
    duration: float
    timestamp: str
    duration_ms: float
    signal: str | None = None
    timed_out: bool = False
    truncated: bool = False
    lossy: bool = False
    oom_killed: bool = False
    encoding: str = "utf8"
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    session_id: str | None = None


class SandboxView(msgspec.Struct, rename="camel", kw_only=True):
    """A sandbox as lists and look-ups show it; reading one never wakes it. Times are ISO 8601 in UTC."""

    path: str
    name: str
    project: str
    status: str
    running: bool
    instance_type: str
    image: str
    image_digest: str
    isolation: str
    created_at: str
    sandbox_id: str
    env: dict[str, str] = {}
    labels: dict[str, str] = {}
    sleep_after: str | int | None = None
    keep_alive: bool = False
    persist: str = "workspace"
    last_backup_id: str | None = None
    leave_out: dict[str, bool | list[str]] = {}
    last_backup_at: str | None = None
    points: bool = False
    warnings: list[str] = []
    """Advice on what was asked for; in the answer to that alone."""


class UsageView(msgspec.Struct, rename="camel", kw_only=True):
    """What one running sandbox uses of what it may: bytes, counts, seconds of CPU since it was started.

    `cpu_limit` is in vCPU; the rate of CPU is the difference of two looks over the time between them.
    """

    path: str
    name: str
    instance_type: str
    cpu_seconds: float
    cpu_limit: float
    memory: int
    memory_limit: int
    disk: int
    disk_limit: int
    processes: int
    process_limit: int
    oom_kills: int = 0


class SnapshotView(msgspec.Struct, rename="camel", kw_only=True):
    """A snapshot of a sandbox: `size` is what it added to the store and `left_out` how many paths it has not, `depth`
    how many layers it is; `parent` is the listed one that its files came from, `forks` are the sandboxes forked from it
    and `offset` is its event's. Times are ISO 8601 in UTC; without `expires_at` it lasts until it is deleted."""

    id: str
    name: str | None
    reason: str
    created_at: str
    expires_at: str | None
    size: int
    left_out: int
    depth: int
    parent: str | None = None
    forks: list[str] = []
    offset: int = 0


class BackupView(msgspec.Struct, rename="camel", kw_only=True):
    """A backup of one directory: `size` in bytes, `left_out` paths that it has not. Times are ISO 8601 in UTC; without
    `expires_at` it lasts until it is deleted."""

    id: str
    dir: str
    name: str | None
    created_at: str
    expires_at: str | None
    size: int
    left_out: int


class MountView(msgspec.Struct, rename="camel", kw_only=True):
    """A bucket that is mounted; `alive` says whether what serves it still runs. The time is ISO 8601 in UTC."""

    bucket: str
    mount_path: str
    endpoint: str
    prefix: str | None
    read_only: bool
    mounted_at: str
    alive: bool


class BackupRestored(msgspec.Struct, rename="camel", kw_only=True):
    """Where a backup was put back."""

    success: bool
    dir: str
    id: str


class PathChange(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """One path, from `/workspace`: `added`, `changed` or `removed`; exact bytes in base64 where it is not UTF-8."""

    path: str
    change: str
    path_base64: str | None = None


class DiffView(msgspec.Struct, rename="camel", kw_only=True):
    """How many paths differ, and the first of them; `truncated` says that there are more."""

    added: int
    changed: int
    removed: int
    paths: list[PathChange]
    truncated: bool
