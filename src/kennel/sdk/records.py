"""Owns the shapes of the durable record as clients read it: events, verifications, projections, live updates.

Called by both halves of the SDK. Invariant: as in `kennel.sdk.answers`; a diff is applied to the state it was made
for, or refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from kennel.sdk.answers import Shape
from kennel.wire.errors import error

EVENT_FIELDS = {
    "type": "type", "payload": "payload", "metadata": "metadata", "offset": "offset",
    "idempotency_key": "idempotencyKey", "idempotencyKey": "idempotencyKey",
}  # fmt: skip
"""The fields of an event to append, as callers may write them, and their names on the wire."""


class Source(Shape):
    """On whose behalf an event was written (`key_id`), and whether Kennel itself vouches for it (`platform`)."""

    platform: bool = False
    key_id: str | None = None


class Event(Shape):
    """One event of a stream; `offset` counts from 1 without holes, `created_at` is ISO 8601 in UTC."""

    offset: int
    type: str
    payload: dict[str, Any]
    path: str
    project: str
    created_at: str
    metadata: dict[str, Any] = {}
    idempotency_key: str | None = None
    source: Source = msgspec.field(default_factory=Source)
    position: int = 0
    hash: str = ""


class EventList(Shape):
    events: list[Event]


class StreamRow(Shape):
    path: str


class StreamPage(Shape):
    streams: list[StreamRow]
    cursor: str | None = None


class Fault(Shape):
    """Where a stream disagrees with its hash chain, and how."""

    offset: int
    reason: str


class Verification(Shape):
    """What checking a stream's hash chain came to; `events` is the last offset, `holds` that no fault was found."""

    path: str
    events: int
    holds: bool
    faults: list[Fault] = []


class Projection(Shape):
    """A sandbox as its own stream tells it; `status` is None before its birth, `destroyed` after its end.

    `unset` names the variables that a start would plant and that null took away.
    """

    status: str | None = None
    running: bool = False
    instance_type: str | None = None
    last_backup_id: str | None = None
    env: dict[str, str] = {}
    unset: list[str] = []
    sleep_after: str | int | None = None
    keep_alive: bool = False
    labels: dict[str, str] = {}
    image: str | None = None
    image_digest: str | None = None
    isolation: str | None = None
    persist: str | None = None
    sandbox_id: str | None = None
    created_at: str | None = None
    stop_reason: str | None = None
    requested: str | None = None
    workspace: dict[str, Any] = {}
    leave_out: dict[str, Any] = {}
    points: bool = False


class ProjectionSnapshot(Shape):
    """A projection and the offset of the stream that it stands at."""

    offset: int
    state: Projection


class LiveUpdate(Shape):
    """One turn of a live view: the whole `state` at `revision`, however it came.

    `kind` is `snapshot`; or `diff`, with the `operations` (JSON Patch) that led here from revision `previous`; or
    `gap`: the server ended the subscription, `state` is the last one known and a snapshot follows.
    """

    kind: Literal["snapshot", "diff", "gap"]
    revision: int
    state: Projection
    previous: int | None = None
    operations: list[dict[str, Any]] = []


def event_bodies(events: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Events to append as the wire wants them, one or many; VALIDATION_FAILED for a field that no event has."""
    many = [events] if isinstance(events, Mapping) else list(events)
    found = []
    for event in many:
        if not isinstance(event, Mapping) or "type" not in event:
            raise error("VALIDATION_FAILED", "an event is a dict with a type", hint='{"type": "note", "payload": {}}')
        unknown = sorted(set(event) - EVENT_FIELDS.keys())
        if unknown:
            known = ", ".join(sorted(EVENT_FIELDS.keys() - {"idempotencyKey"}))
            raise error("VALIDATION_FAILED", f"an event has no field {unknown[0]!r}", hint=f"fields: {known}")
        found.append({EVENT_FIELDS[name]: value for name, value in event.items() if value is not None})
    return found


def repeatable(bodies: Sequence[Mapping[str, Any]]) -> bool:
    """Whether sending these events again changes nothing: each has a key by which the stream knows it."""
    return all("idempotencyKey" in body for body in bodies)


def patched(state: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """`state` with the server's operations (add, replace, remove) applied; PROTOCOL_VIOLATION when they do not fit."""
    try:
        for operation in operations:
            path, value = operation["path"], operation.get("value")
            if path == "":
                state = value
                continue
            *way, last = (word.replace("~1", "/").replace("~0", "~") for word in path[1:].split("/"))
            where = state
            for word in way:
                where = where[word]
            if operation["op"] == "remove":
                del where[last]
            else:
                where[last] = value
    except (KeyError, TypeError, AttributeError, IndexError) as failure:
        raise error("PROTOCOL_VIOLATION", f"the server's diff does not fit: {failure!r}") from failure
    return state
