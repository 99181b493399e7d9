"""Owns the catalogue of Kennel's own events: every platform type, its payload, its stream and its writer.

Asked by `admission` before a platform event is taken; `docs/events.md` is written from it. Invariant: no service can
append a platform event that is not listed here or does not have the listed shape, so a fold may rely on both.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from kennel.domain import egress_events as egress
from kennel.domain import sandbox_events as sandbox
from kennel.domain.sandbox_events import Nothing, Payload, Short
from kennel.wire.egress import Record
from kennel.wire.errors import error


class StreamCreated(Payload):
    project: Short
    path: Short
    stream_id: Short


class ChildStreamCreated(Payload):
    child_path: Short


class ProjectCreated(Payload):
    name: Short
    request_id: Short


class KeyCreated(Payload):
    key_id: Short
    project: str | None
    scopes: list[str]
    name: Short
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class KeyRevoked(Payload):
    key_id: Short


class SessionOpened(Payload):
    holder: Short
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class SessionClosed(Payload):
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class SandboxAssigned(Payload):
    path: Short
    generation: Annotated[int, msgspec.Meta(ge=1)]
    room_id: Short
    instead_of: Short | UnsetType = UNSET


class CleanupRequested(Payload):
    room_id: Short


class Cleaned(Payload):
    path: Short
    room_id: Short


class ShellSaved(Payload):
    path: Short
    cwd: str
    env: dict[str, str]
    since: sandbox.Count | UnsetType = UNSET


class RoomOpened(Payload):
    room_id: Short


class RoomSettings(Payload):
    history: int | UnsetType | None = UNSET
    context: int | UnsetType | None = UNSET
    max_rounds: int | UnsetType | None = UNSET
    instructions: str | UnsetType | None = UNSET
    turns_per_minute: int | UnsetType | None = UNSET
    commands_per_minute: int | UnsetType | None = UNSET


class RoomConfigured(Payload):
    title: Short | UnsetType | None = UNSET
    settings: RoomSettings | UnsetType = UNSET


class MessageSaid(Payload):
    turn_id: Short
    role: Literal["user", "agent"]
    text: str
    user_id: Short | UnsetType = UNSET
    place: sandbox.Count | UnsetType = UNSET


class TurnStarted(Payload):
    turn_id: Short


class TurnEnded(Payload):
    turn_id: Short
    outcome: Literal["replied", "failed", "cancelled", "interrupted"]
    code: Short | UnsetType = UNSET
    error: str | UnsetType = UNSET


class CommandStarted(Payload):
    turn_id: Short
    command_id: Short
    command: sandbox.Command
    place: sandbox.Count | UnsetType = UNSET
    waking: bool | UnsetType = UNSET


class CommandFinished(Payload):
    turn_id: Short
    command_id: Short
    exit_code: int | UnsetType = UNSET
    output: str | UnsetType = UNSET
    code: Short | UnsetType = UNSET
    error: str | UnsetType = UNSET


class MemberJoined(Payload):
    user_id: Short
    role: Literal["driver", "observer"]


class MemberLeft(Payload):
    user_id: Short


class LinkCreated(Payload):
    link_id: Short
    project: Short
    room_id: Short
    epoch: sandbox.Count
    role: Literal["driver", "observer"]
    name: Short
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    user_id: Short | UnsetType = UNSET
    expires_at: Short | UnsetType = UNSET


class LinkRevoked(Payload):
    link_id: Short


class EventType(msgspec.Struct, frozen=True):
    """One type: the shape of its payload, the stream it lies on, which service writes it, and what it means."""

    name: str
    payload: type[msgspec.Struct]
    stream: str
    writer: str
    meaning: str


_OWN = "the sandbox's own"
_LIFE = "lifecycle"
_ROOM = "the room's own"
_APPROVALS = "`/egress/approvals`"
_LINKS = "installation `/room-links`"
_SESSIONS = "installation `/console-sessions`"

EVENT_TYPES: dict[str, EventType] = {
    t.name: t
    for t in (
        EventType("stream/created", StreamCreated, "every stream", "log", "the stream exists; always at offset 1"),
        EventType(
            "stream/child-stream-created", ChildStreamCreated, "every ancestor", "log", "a stream was born below"
        ),
        EventType("project/created", ProjectCreated, "installation `/projects`", "projects", "the project exists"),
        EventType("key/created", KeyCreated, "installation `/keys`", "keys", "the key is in force; its hash is kept"),
        EventType("key/revoked", KeyRevoked, "installation `/keys`", "keys", "the key is void for good"),
        EventType(
            "key/session-opened", SessionOpened, _SESSIONS, "console sessions",
            "the holder of this key or join link logged in to the console; the cookie's hash is kept",
        ),
        EventType("key/session-closed", SessionClosed, _SESSIONS, "console sessions", "that session is over"),
        EventType(
            "sandbox/create-requested", sandbox.CreateRequested, "`/sandboxes`", "catalogue",
            "the claim: this name is taken by this request",
        ),
        EventType(
            "sandbox/create-abandoned", sandbox.CreateAbandoned, "`/sandboxes`", "catalogue",
            "the claim's sandbox can never be made; the name is free",
        ),
        EventType("sandbox/created", sandbox.Created, _OWN, _LIFE, "the sandbox is born; the first one counts"),
        EventType(
            "sandbox/configured", sandbox.Configured, _OWN, _LIFE,
            "settings changed; `env` merges by key and null unsets, the others replace",
        ),
        EventType("sandbox/start-requested", sandbox.StartRequested, _OWN, _LIFE, "a start was asked for"),
        EventType("sandbox/started", sandbox.Started, _OWN, _LIFE, "the sandbox runs"),
        EventType(
            "sandbox/root-set-aside", sandbox.RootSetAside, _OWN, _LIFE,
            "what was changed outside `/workspace` fits another image, so it started without",
        ),
        EventType("sandbox/workspace-restored", sandbox.Backup, _OWN, _LIFE, "the workspace is that of this backup"),
        EventType("sandbox/sleep-requested", Nothing, _OWN, _LIFE, "a sleep was asked for"),
        EventType(
            "sandbox/backup-created", sandbox.BackupCreated, _OWN, _LIFE,
            "the files are safe under this id, as these layers (the topmost first)",
        ),
        EventType(
            "sandbox/point-taken", sandbox.PointTaken, _OWN, _LIFE,
            "the files as they were before the command that comes next; these layers are on its machine alone",
        ),
        EventType("sandbox/directory-saved", sandbox.DirectorySaved, _OWN, _LIFE, "it is kept as an archive"),
        EventType(
            "sandbox/directory-restored", sandbox.DirectoryRestored, _OWN, _LIFE, "it is what that backup holds"
        ),
        EventType("sandbox/rolled-back", sandbox.RolledBack, _OWN, _LIFE, "the files are those of this earlier backup"),
        EventType("sandbox/compacted", sandbox.Compacted, _OWN, _LIFE, "the same files, as fewer layers"),
        EventType("sandbox/snapshot-deleted", sandbox.Backup, _OWN, _LIFE, "this snapshot is gone"),
        EventType(
            "sandbox/backup-progress", sandbox.BackupProgress, _OWN, _LIFE,
            "a backup or restore of over two seconds goes on; told ever more rarely",
        ),
        EventType("sandbox/backup-failed", sandbox.BackupFailed, _OWN, _LIFE, "no backup was made; the last stands"),
        EventType("sandbox/stopped", sandbox.Stopped, _OWN, _LIFE, "the sandbox runs no more"),
        EventType("sandbox/kill-requested", Nothing, _OWN, _LIFE, "a kill was asked for"),
        EventType("sandbox/destroy-requested", Nothing, _OWN, _LIFE, "its end was asked for"),
        EventType("sandbox/destroyed", Nothing, _OWN, _LIFE, "the sandbox is gone and its name retired; terminal"),
        EventType("sandbox/snapshot-skipped", sandbox.SnapshotSkipped, _OWN, _LIFE, "a stop took no backup, and why"),
        EventType("sandbox/restore-failed", sandbox.RestoreFailed, _OWN, _LIFE, "the backup could not be mounted"),
        EventType("sandbox/workspace-expired", sandbox.Backup, _OWN, _LIFE, "this backup aged out; the next is empty"),
        EventType("sandbox/exec-started", sandbox.ExecStarted, _OWN, _LIFE, "a command was admitted"),
        EventType("sandbox/exec-finished", sandbox.ExecFinished, _OWN, _LIFE, "how that command ended"),
        EventType("sandbox/process-started", sandbox.ProcessStarted, _OWN, _LIFE, "a background process was started"),
        EventType("sandbox/process-ended", sandbox.ProcessEnded, _OWN, _LIFE, "how it ended, unless it was by a stop"),
        EventType("sandbox/context-created", sandbox.ContextCreated, _OWN, _LIFE, "a code context was made"),
        EventType("sandbox/context-deleted", sandbox.ContextDeleted, _OWN, _LIFE, "somebody ended a code context"),
        EventType("sandbox/code-started", sandbox.CodeStarted, _OWN, _LIFE, "a cell of code was admitted"),
        EventType("sandbox/code-finished", sandbox.CodeFinished, _OWN, _LIFE, "how that cell ended"),
        EventType("sandbox/port-exposed", sandbox.PortExposed, _OWN, _LIFE, "the port has a preview under this token"),
        EventType("sandbox/port-revoked", sandbox.PortRevoked, _OWN, _LIFE, "the port's preview is void"),
        EventType("sandbox/bucket-mounted", sandbox.BucketMounted, _OWN, _LIFE, "a bucket is mounted, until a stop"),
        EventType("sandbox/bucket-unmounted", sandbox.BucketUnmounted, _OWN, _LIFE, "it is mounted no more"),
        EventType("room/opened", RoomOpened, _ROOM, "rooms", "the room is in use, for the first time or afresh"),
        EventType("room/configured", RoomConfigured, _ROOM, "rooms", "title or settings changed; null takes one away"),
        EventType("room/sandbox-assigned", SandboxAssigned, _ROOM, "rooms", "the room uses this sandbox"),
        EventType("room/cleanup-requested", CleanupRequested, _ROOM, "rooms", "its end was asked for"),
        EventType("room/cleaned", Cleaned, _ROOM, "rooms", "this sandbox of the room is gone"),
        EventType(
            "room/shell-saved", ShellSaved, _ROOM, "rooms",
            "the shell's directory and exported variables, to go on from after a sleep; `since`: newer configuration "
            "of the sandbox goes before them",
        ),
        EventType(
            "room/message-said", MessageSaid, _ROOM, "rooms",
            "a person's message, which opens a turn behind `place` others, or the model's reply to it",
        ),
        EventType("room/turn-started", TurnStarted, _ROOM, "rooms", "the turn's wait is over; the model is asked"),
        EventType("room/command-started", CommandStarted, _ROOM, "rooms", "the model's command runs, or waits"),
        EventType("room/command-finished", CommandFinished, _ROOM, "rooms", "what came of it, its output's head"),
        EventType("room/turn-ended", TurnEnded, _ROOM, "rooms", "how the turn ended"),
        EventType("room/member-joined", MemberJoined, _ROOM, "rooms", "this person is a member, with this role"),
        EventType("room/member-left", MemberLeft, _ROOM, "rooms", "this person is no member any more"),
        EventType("room/link-created", LinkCreated, _LINKS, "rooms", "a join link is in force; its hash is kept"),
        EventType("room/link-revoked", LinkRevoked, _LINKS, "rooms", "the link is void for good"),
        EventType(
            "secret/stored", egress.SecretStored, "`/secrets`", "secrets",
            "the secret is this sealed box, bound to its pin and to this event's offset",
        ),
        EventType(
            "secret/rotated", egress.SecretRotated, "`/secrets`", "secrets",
            "new material that its strategy brought, for the secret stored at that offset; void if it was replaced",
        ),
        EventType("secret/removed", egress.SecretRemoved, "`/secrets`", "secrets", "there is no such secret any more"),
        EventType("secret/used", egress.SecretUsed, "`/secrets/uses`", "secrets", "it went out this often, last so"),
        EventType(
            "egress/rules-configured", egress.RulesConfigured, "`/egress/rules`", "egress",
            "the project's whole policy from now on",
        ),
        EventType("egress/recorded", Record, "`/egress/log`", "egress", "a decision, before dispatch, or its outcome"),
        EventType(
            "egress/trimmed", egress.Trimmed, "`/egress/log`", "retention",
            "the stream up to this offset aged out; the digest is the hash it ended with",
        ),
        EventType(
            "egress/approval-requested", egress.ApprovalRequested, _APPROVALS, "approvals", "requests wait for a person"
        ),
        EventType("egress/approval-decided", egress.ApprovalDecided, _APPROVALS, "approvals", "a person's answer"),
        EventType("egress/approval-ended", egress.ApprovalEnded, _APPROVALS, "approvals", "it ended without an answer"),
        EventType("egress/approval-settled", egress.ApprovalSettled, _APPROVALS, "approvals", "how that request went"),
    )
}  # fmt: skip
"""By name, in the order of the page."""


def check_payload(index: int, name: str, payload: dict[str, object]) -> None:
    """INVALID_EVENT when this platform type is not listed or its payload has another shape."""
    known = EVENT_TYPES.get(name)
    if known is None:
        raise error("INVALID_EVENT", f"event {index}: '{name}' is no event of Kennel's", details={"index": index})
    try:
        msgspec.convert(payload, known.payload)
    except msgspec.ValidationError as fault:
        raise error(
            "INVALID_EVENT", f"event {index}: '{name}' has another payload: {fault}", details={"index": index}
        ) from None
