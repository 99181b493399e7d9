"""Owns a room's identity, the sandbox paths it maps to, and the fold of its stream; no I/O.

Called by control's room services and the rooms routes. Invariants: two room ids never share a path, in any generation;
a generation that a cleanup ended is never used again; after a cleanup nothing of the room's talk, members and settings
is left; only events stamped by the platform count.
"""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from kennel.domain import membership, turn
from kennel.domain.event import Event, trusted
from kennel.domain.membership import Members
from kennel.domain.names import MAX_NAME, path_of
from kennel.domain.turn import Talk
from kennel.wire.errors import error

MAX_ROOM_ID = 128
SESSION = "room"
TIMEOUT_MS = 120_000

OPENED = "room/opened"
CONFIGURED = "room/configured"
ASSIGNED = "room/sandbox-assigned"
CLEANUP_REQUESTED = "room/cleanup-requested"
CLEANED = "room/cleaned"
SHELL_SAVED = "room/shell-saved"

MAX_SAVED_ENV = 64 * 1024
"""Characters of names and values together that are kept of a shell; an event holds 256 KiB."""
_TRANSIENT = ("_", "PWD", "SHLVL")
"""Variables that every shell makes for itself."""

_SIMPLE = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_SIMPLE_PREFIX = "sandbox-"
_HASHED_PREFIX = "room."


def check_room_id(room_id: str) -> str:
    """The id itself when it has 1–128 characters, none of them a control character; VALIDATION_FAILED otherwise."""
    if not 1 <= len(room_id) <= MAX_ROOM_ID:
        complaint = f"a room id has 1 to {MAX_ROOM_ID} characters"
    elif any(unicodedata.category(c) in ("Cc", "Cs") for c in room_id):
        complaint = "a room id holds no control characters"
    else:
        return room_id
    raise error("VALIDATION_FAILED", "invalid request", details={"roomId": [complaint]})


def _simple(room_id: str) -> bool:
    return len(_SIMPLE_PREFIX + room_id) <= MAX_NAME and _SIMPLE.fullmatch(room_id) is not None


def _digest(room_id: str) -> str:
    return base64.b32encode(hashlib.sha256(room_id.encode()).digest()).decode().rstrip("=").lower()


def stream_of(room_id: str) -> str:
    """The room's stream: `/rooms/<id>`, or `/rooms/room.<sha256>` when the id is not a plain word.

    A plain id holds no dot, so the two forms cannot meet.
    """
    return "/rooms/" + (room_id if _simple(room_id) else _HASHED_PREFIX + _digest(room_id))


def sandbox_path(room_id: str, generation: int) -> str:
    """Where the room's n-th sandbox lives (from 1): `sandbox-<id>` or `room.<sha256>`, then `.2`, `.3` and so on."""
    base = _SIMPLE_PREFIX + room_id if _simple(room_id) else _HASHED_PREFIX + _digest(room_id)
    return path_of(base if generation == 1 else f"{base}.{generation}")


@dataclass(frozen=True, slots=True)
class Shell:
    """What of a room's shell outlives its sandbox's sleep: its directory and its exported variables.

    `since` is the offset of the sandbox's stream at which the shell began: what was configured later is newer than the
    shell's own variables of those names.
    """

    cwd: str
    env: Mapping[str, str]
    since: int = 0

    def without(self, names: frozenset[str]) -> Shell:
        """The shell without these variables."""
        return replace(self, env={name: value for name, value in self.env.items() if name not in names})


class Habits(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A room's settings; None is the installation's own.

    `history` is how many messages an answer holds, `context` how many earlier ones the model is shown, `maxRounds` how
    often the model is asked in one turn, `instructions` are added to its system text; quotas are per minute.
    """

    history: int | None = None
    context: int | None = None
    max_rounds: int | None = None
    instructions: str | None = None
    turns_per_minute: int | None = None
    commands_per_minute: int | None = None


def keepable(cwd: str, env: Mapping[str, str], since: int = 0) -> Shell | None:
    """The part of a shell that can be kept; None when that is too large. What is not text is left out."""
    kept = {name: value for name, value in env.items() if name not in _TRANSIENT and _is_text(name + value)}
    if not _is_text(cwd) or sum(len(name) + len(value) for name, value in kept.items()) > MAX_SAVED_ENV:
        return None
    return Shell(cwd, kept, since)


def _is_text(value: str) -> bool:
    """Whether this is Unicode; bytes that are not come as half surrogates, which no event can hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class RoomState:
    """A room as its stream tells it: `path` is None before the first use and after a cleanup.

    A sandbox is assigned only once the room has made it, so `uncleaned` (those not yet known to be destroyed) holds
    nothing of anybody else. `cleanups` counts the requests: what waited through one can tell. `opened_at` is None
    while the room holds nothing; times are ISO 8601 in UTC.
    """

    offset: int = 0
    generation: int = 0
    path: str | None = None
    cleanups: int = 0
    uncleaned: tuple[str, ...] = ()
    shell: Shell | None = None
    room_id: str | None = None
    opened_at: str | None = None
    active_at: str | None = None
    title: str | None = None
    habits: Habits = field(default_factory=Habits)
    members: Members = field(default_factory=dict)
    talk: Talk = field(default_factory=Talk)

    @property
    def doomed(self) -> tuple[str, ...]:
        """Sandboxes of earlier generations that a cleanup has not destroyed yet."""
        return tuple(path for path in self.uncleaned if path != self.path)

    @property
    def weight(self) -> int:
        """Characters held, roughly."""
        shell = sum(len(name) + len(value) for name, value in self.shell.env.items()) if self.shell else 0
        return 1000 + self.talk.size + shell + 100 * len(self.members)


def evolve(state: RoomState, event: Event) -> RoomState:
    """The state after one event of the room's stream; types of others and forged ones only move the offset."""
    state = replace(state, offset=event.offset)
    if not trusted(event) or not event.type.startswith("room/"):
        return state
    if event.type == CLEANUP_REQUESTED:
        return RoomState(
            offset=state.offset,
            generation=state.generation,
            cleanups=state.cleanups + 1,
            uncleaned=state.uncleaned,
            room_id=str(event.payload["roomId"]),
        )
    if event.type == CLEANED:
        return replace(state, uncleaned=tuple(p for p in state.uncleaned if p != event.payload["path"]))
    if event.type in (OPENED, ASSIGNED):
        opened = event.created_at if state.opened_at is None else state.opened_at
        state = replace(state, room_id=str(event.payload["roomId"]), opened_at=opened)
    if state.opened_at is None:
        return state
    return _opened(replace(state, active_at=event.created_at), event)


def _opened(state: RoomState, event: Event) -> RoomState:
    """The state of a room that is open after one of its own events."""
    payload = event.payload
    if event.type == ASSIGNED:
        path, generation = str(payload["path"]), int(payload["generation"])
        kept = tuple(p for p in state.uncleaned if p != payload.get("insteadOf"))
        return replace(state, generation=generation, path=path, uncleaned=(*kept, path), shell=None)
    if event.type == SHELL_SAVED and payload["path"] == state.path:
        saved = Shell(str(payload["cwd"]), dict(payload["env"]), int(payload.get("since", 0)))
        return replace(state, shell=saved)
    if event.type == CONFIGURED:
        return _configured(state, payload)
    members, talk = membership.evolve(state.members, event), turn.evolve(state.talk, event)
    return replace(state, members=members, talk=talk)


def _configured(state: RoomState, payload: Mapping[str, Any]) -> RoomState:
    title = payload.get("title", state.title)
    given = payload.get("settings", {})
    merged = msgspec.to_builtins(state.habits) | given
    known = {name: value for name, value in merged.items() if name in _HABITS}
    return replace(state, title=title, habits=msgspec.convert(known, Habits))


_HABITS = frozenset(field.encode_name for field in msgspec.structs.fields(Habits))
