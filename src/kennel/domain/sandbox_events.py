"""Owns what each `sandbox/*` event says: its payload's shape, field by field.

Read by `event_types`, which the log asks before it takes a platform event. Invariant: payloads are stored for ever, so
fields are only ever added, and only as optional ones; the environment appears in `configured` and the claim alone.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

MAX_COMMAND = 500
"""Characters of a command that are kept in the log."""

MAX_TEXT = 1024
"""Characters of a name, an id or a path; messages of failures have no limit of their own."""

Short = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
Command = Annotated[str, msgspec.Meta(max_length=MAX_COMMAND)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Payload(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """What every payload has in common: camelCase, nothing beyond the listed fields."""


class Nothing(Payload):
    """Says all by its type."""


class CreateRequested(Payload):
    path: Short
    instance_type: Short
    image: Short
    image_digest: Short
    isolation: Short
    persist: Short
    labels: dict[str, str]
    request_id: Short
    sandbox_id: Short
    sleep_after: str | int | UnsetType | None = UNSET
    keep_alive: bool | UnsetType = UNSET
    env: dict[str, str | None] | UnsetType = UNSET
    leave_out: LeaveOut | UnsetType = UNSET
    points: bool | UnsetType = UNSET
    origin: BackupCreated | UnsetType = UNSET


class CreateAbandoned(Payload):
    path: Short
    request_id: Short
    code: Short
    reason: str


class Config(Payload):
    instance_type: Short
    image: Short
    image_digest: Short
    isolation: Short
    persist: Short
    sandbox_id: Short


class Created(Payload):
    config: Config


class Configured(Payload):
    env: dict[str, str | None] | UnsetType = UNSET
    sleep_after: str | int | UnsetType | None = UNSET
    keep_alive: bool | UnsetType = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    leave_out: LeaveOut | UnsetType = UNSET
    points: bool | UnsetType = UNSET


class StartRequested(Payload):
    empty: bool | UnsetType = UNSET


class Started(Payload):
    image_digest: Short | UnsetType = UNSET


class RootSetAside(Payload):
    """`madeOn` is the digest of the image it was made on, `imageDigest` of the one the sandbox has now."""

    made_on: Short
    image_digest: Short


class Stopped(Payload):
    reason: Short | UnsetType = UNSET
    oom_killed: bool | UnsetType = UNSET


class Backup(Payload):
    backup_id: Short


Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Layers = Annotated[list[Digest], msgspec.Meta(max_length=64)]


class Origin(Payload):
    """Where a fork comes from."""

    path: Short
    backup_id: Short


class BackupCreated(Payload):
    backup_id: Short
    layers: Layers | UnsetType = UNSET
    root: Layers | UnsetType = UNSET
    usr: Layers | UnsetType = UNSET
    image_digest: Short | UnsetType = UNSET
    reason: Literal["requested", "idle", "snapshot", "checkpoint", "fork", "kept"] | UnsetType = UNSET
    name: Short | UnsetType = UNSET
    ttl_seconds: Count | UnsetType = UNSET
    bytes: Count | UnsetType = UNSET
    left_out: Count | UnsetType = UNSET
    left_out_bytes: Count | UnsetType = UNSET
    left_out_by: Literal["nothing", "names", "git"] | UnsetType = UNSET
    duration_ms: float | UnsetType = UNSET
    frozen_ms: float | UnsetType = UNSET
    origin: Origin | UnsetType = UNSET


class PointTaken(Payload):
    """As `backup-created`, of a point: its layers are on the sandbox's machine alone."""

    backup_id: Short
    layers: Layers
    root: Layers | UnsetType = UNSET
    usr: Layers | UnsetType = UNSET
    image_digest: Short | UnsetType = UNSET
    bytes: Count | UnsetType = UNSET
    duration_ms: float | UnsetType = UNSET
    frozen_ms: float | UnsetType = UNSET


class DirectorySaved(Payload):
    """`bytes` is the archive before it is compressed, `leftOut` how many listed paths are not in it."""

    backup_id: Short
    dir: str
    bytes: Count
    name: Short | UnsetType = UNSET
    ttl_seconds: Count | UnsetType = UNSET
    left_out: Count | UnsetType = UNSET
    left_out_by: Literal["nothing", "names", "git"] | UnsetType = UNSET
    duration_ms: float | UnsetType = UNSET


class DirectoryRestored(Payload):
    backup_id: Short
    dir: str


class RolledBack(Payload):
    backup_id: Short
    layers: Layers
    root: Layers | UnsetType = UNSET
    usr: Layers | UnsetType = UNSET
    image_digest: Short | UnsetType = UNSET


class Compacted(Payload):
    layers: Layers
    root: Layers | UnsetType = UNSET
    usr: Layers | UnsetType = UNSET


class LeaveOut(Payload):
    """What snapshots leave out: `node_modules`, what git ignores, and paths that match these patterns."""

    node_modules: bool | UnsetType = UNSET
    gitignore: bool | UnsetType = UNSET
    patterns: Annotated[list[Short], msgspec.Meta(max_length=64)] | UnsetType = UNSET


class BackupProgress(Payload):
    """How far long work on the files is: names and bytes so far, and of how many, where that is known."""

    phase: Literal["packing", "uploading", "fetching"]
    bytes: Count
    names: Count | UnsetType = UNSET
    total: Count | UnsetType = UNSET


class BackupFailed(Payload):
    error: str


class SnapshotSkipped(Payload):
    reason: str


class RestoreFailed(Payload):
    error: str
    backup_id: Short | UnsetType = UNSET


class ExecStarted(Payload):
    exec_id: Short
    command: Command
    cwd: str | UnsetType = UNSET
    timeout_ms: Count | UnsetType = UNSET


class ProcessStarted(Payload):
    process_id: Short
    command: Command
    cwd: str | UnsetType = UNSET
    timeout_ms: Count | UnsetType = UNSET


class ProcessEnded(Payload):
    """Without an exit code it was never started."""

    process_id: Short
    duration_ms: Count
    exit_code: int | UnsetType = UNSET
    signal: Short | UnsetType = UNSET
    timed_out: bool | UnsetType = UNSET


class ContextCreated(Payload):
    context_id: Short
    language: Short
    cwd: str | UnsetType = UNSET


class ContextDeleted(Payload):
    context_id: Short


class CodeStarted(Payload):
    run_id: Short
    context: Short
    code: Command
    timeout_ms: Count | UnsetType = UNSET


class CodeFinished(Payload):
    run_id: Short
    execution_count: Count | UnsetType = UNSET
    status: Literal["ok", "error"] | UnsetType = UNSET
    timed_out: bool | UnsetType = UNSET
    interrupted: bool | UnsetType = UNSET
    duration_ms: float | UnsetType = UNSET
    error: Short | UnsetType = UNSET


class PortExposed(Payload):
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    token: Short
    name: Short | UnsetType = UNSET
    wake: bool | UnsetType = UNSET


class PortRevoked(Payload):
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class BucketMounted(Payload):
    bucket: Short
    mount_path: Short
    endpoint: Short
    read_only: bool
    prefix: Short | UnsetType = UNSET


class BucketUnmounted(Payload):
    mount_path: Short


class ExecFinished(Payload):
    exec_id: Short
    timed_out: bool
    duration_ms: float | UnsetType = UNSET
    stdout_bytes: Count | UnsetType = UNSET
    stderr_bytes: Count | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET
    error: str | UnsetType = UNSET
    signal: Short | UnsetType = UNSET
