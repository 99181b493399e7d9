"""Owns a room's identity, the sandbox paths it maps to, and the fold of its stream; no I/O.

Called by control/rooms.py and the rooms routes. Invariants: two room ids never share a path, in any generation;
a generation that a cleanup ended is never used again; only events stamped by the platform count.
"""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
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


def evolve(state: RoomState, event: Event) -> RoomState:
    """The state after one event of the room's stream; types of others and forged ones only move the offset."""
    state = replace(state, offset=event.offset)
    if not trusted(event):
        return state
    if event.type == ASSIGNED:
        path, generation = str(event.payload["path"]), int(event.payload["generation"])
        kept = tuple(p for p in state.uncleaned if p != event.payload.get("insteadOf"))
        return replace(state, generation=generation, path=path, uncleaned=(*kept, path))
    if event.type == CLEANUP_REQUESTED:
        return replace(state, path=None, cleanups=state.cleanups + 1)
    if event.type == CLEANED:
        return replace(state, uncleaned=tuple(p for p in state.uncleaned if p != event.payload["path"]))
    return state
