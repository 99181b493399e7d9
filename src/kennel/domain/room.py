"""Owns a room's identity, the sandbox paths it maps to, and the fold of its stream; no I/O.

Called by control/rooms.py and the rooms routes. Invariants: two room ids never share a path, in any generation;
a generation that a cleanup ended is never used again; only events stamped by the platform count.
"""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kennel.domain.event import Event, trusted
from kennel.domain.names import MAX_NAME, path_of
from kennel.wire.errors import error

MAX_ROOM_ID = 128
SESSION = "room"
TIMEOUT_MS = 120_000

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
    """What of a room's shell outlives its sandbox's sleep: its directory and its exported variables."""

    cwd: str
    env: Mapping[str, str]


def keepable(cwd: str, env: Mapping[str, str]) -> Shell | None:
    """The part of a shell that can be kept; None when that is too large. What is not text is left out."""
    kept = {name: value for name, value in env.items() if name not in _TRANSIENT and _is_text(name + value)}
    if not _is_text(cwd) or sum(len(name) + len(value) for name, value in kept.items()) > MAX_SAVED_ENV:
        return None
    return Shell(cwd, kept)


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
    nothing of anybody else. `cleanups` counts the requests: a command that waited through one can tell.
    """

    offset: int = 0
    generation: int = 0
    path: str | None = None
    cleanups: int = 0
    uncleaned: tuple[str, ...] = ()
    shell: Shell | None = None


def evolve(state: RoomState, event: Event) -> RoomState:
    """The state after one event of the room's stream; types of others and forged ones only move the offset."""
    state = replace(state, offset=event.offset)
    if not trusted(event):
        return state
    if event.type == ASSIGNED:
        path, generation = str(event.payload["path"]), int(event.payload["generation"])
        kept = tuple(p for p in state.uncleaned if p != event.payload.get("insteadOf"))
        return replace(state, generation=generation, path=path, uncleaned=(*kept, path), shell=None)
    if event.type == CLEANUP_REQUESTED:
        return replace(state, path=None, cleanups=state.cleanups + 1, shell=None)
    if event.type == CLEANED:
        return replace(state, uncleaned=tuple(p for p in state.uncleaned if p != event.payload["path"]))
    if event.type == SHELL_SAVED and event.payload["path"] == state.path:
        return replace(state, shell=Shell(str(event.payload["cwd"]), dict(event.payload["env"])))
    return state
