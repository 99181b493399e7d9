"""Owns what snapshots a sandbox has: the fold of its stream's events about backups.

Called by control/snapshots.py and upkeep. Invariant: a snapshot somebody named stays until it is deleted or its time is
over; of those that Kennel made by itself the last KEPT stay, and of points the last KEPT_POINTS; all of these go when
the workspace expires.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from kennel.domain.event import Event, trusted

TYPES = (
    "sandbox/backup-created",
    "sandbox/point-taken",
    "sandbox/rolled-back",
    "sandbox/compacted",
    "sandbox/snapshot-deleted",
    "sandbox/workspace-expired",
    "sandbox/destroyed",
)
KEPT = 8
KEPT_POINTS = 16
POINT = "point"
_ASKED = frozenset({"snapshot", "fork"})


class Snapshot(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One snapshot. `offset` is its event's, `size` the bytes it added to the store; `made_on` the digest of the
    image that `root` and `usr` were made on, where it is known; `parent` the nearest older one that is left of those
    its files came from. Times are ISO 8601 in UTC."""

    id: str
    offset: int
    name: str | None
    reason: str
    created_at: str
    expires_at: str | None
    size: int
    left_out: int
    layers: tuple[str, ...]
    root: tuple[str, ...] | None
    usr: tuple[str, ...] | None
    made_on: str | None = None
    parent: str | None = None

    @property
    def stacks(self) -> tuple[tuple[str, ...], ...]:
        """All of its stacks."""
        return tuple(stack for stack in (self.layers, self.root, self.usr) if stack is not None)

    def words(self) -> dict[str, Any]:
        """Where its files are, in the words of the events that move a pointer."""
        optional = {"root": self.root, "usr": self.usr, "imageDigest": self.made_on}
        given = {word: value for word, value in optional.items() if value is not None}
        return msgspec.to_builtins({"layers": self.layers, **given})  # type: ignore[no-any-return]

    def expired(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and datetime.fromisoformat(self.expires_at) <= now


def fold(events: Iterable[Event]) -> dict[str, Snapshot]:
    """A sandbox's snapshots by id, the oldest first."""
    found: dict[str, Snapshot] = {}
    came_from: dict[str, str | None] = {}
    current: str | None = None
    for event in events:
        if not trusted(event):
            continue
        payload = event.payload
        if event.type == "sandbox/backup-created" and "layers" in payload:
            made = _made(payload, event)
            came_from[made.id] = current
            found[made.id], current = made, made.id
            _forget_old(found)
        elif event.type == "sandbox/point-taken":
            made = _made({**payload, "reason": POINT}, event)
            found[made.id], came_from[made.id] = made, current
            _forget_old(found)
        elif event.type == "sandbox/rolled-back":
            current = payload["backupId"]
        elif event.type == "sandbox/compacted" and current in found:
            found[current] = replace(found[current], **_stacks(payload))
        elif event.type == "sandbox/snapshot-deleted":
            found.pop(payload["backupId"], None)
        elif event.type == "sandbox/workspace-expired":
            found, current = {id_: each for id_, each in found.items() if _asked(each)}, None
        elif event.type == "sandbox/destroyed":
            found.clear()
    return {id_: replace(each, parent=_left(came_from, found, id_)) for id_, each in found.items()}


def _left(came_from: dict[str, str | None], found: dict[str, Snapshot], id_: str) -> str | None:
    """The nearest one still listed of those that a snapshot came from; shortens the way for the next that asks."""
    way, above = [id_], came_from.get(id_)
    while above is not None and above not in found:
        way.append(above)
        above = came_from.get(above)
    for each in way:
        came_from[each] = above
    return above


def _made(payload: dict[str, Any], event: Event) -> Snapshot:
    created_at = event.created_at
    ttl = payload.get("ttlSeconds")
    ends = None if ttl is None else datetime.fromisoformat(created_at) + timedelta(seconds=ttl)
    return Snapshot(
        id=payload["backupId"],
        offset=event.offset,
        name=payload.get("name"),
        reason=payload.get("reason", "requested"),
        created_at=created_at,
        expires_at=None if ends is None else ends.isoformat(),
        size=payload.get("bytes", 0),
        left_out=payload.get("leftOut", 0),
        made_on=payload.get("imageDigest"),
        **_stacks(payload),
    )


def _stacks(payload: dict[str, Any]) -> dict[str, Any]:
    root, usr = payload.get("root"), payload.get("usr")
    return {
        "layers": tuple(payload["layers"]),
        "root": None if root is None else tuple(root),
        "usr": None if usr is None else tuple(usr),
    }


def _asked(snapshot: Snapshot) -> bool:
    return snapshot.reason in _ASKED


def _forget_old(found: dict[str, Snapshot]) -> None:
    points = [id_ for id_, each in found.items() if each.reason == POINT]
    automatic = [id_ for id_, each in found.items() if each.reason != POINT and not _asked(each)]
    for id_ in (*points[:-KEPT_POINTS], *automatic[:-KEPT]):
        del found[id_]


def point_before(found: Iterable[Snapshot], offset: int) -> Snapshot | None:
    """The newest point that was taken before the event at `offset`; None when there is none any more."""
    points = [each for each in found if each.reason == POINT and each.offset < offset]
    return max(points, key=lambda each: each.offset, default=None)
