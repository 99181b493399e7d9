"""Owns who is in a room: members with their roles, and join links with what they allow; no I/O.

Called by control/members.py, control/links.py and the rooms routes. Invariants: a link's token is in its holder's
hands alone, the log has its SHA-256; a link opens one room, as it was when the link was made: not after a cleanup; an
observer may look and never run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec

from kennel.domain.event import Event, trusted
from kennel.domain.principal import Principal
from kennel.wire.errors import error

JOINED, LEFT = "room/member-joined", "room/member-left"
LINK_CREATED, LINK_REVOKED = "room/link-created", "room/link-revoked"
LINKS = "/room-links"
"""The installation's stream of join links: a token alone must lead to its room."""

PREFIX = "kl_"
"""How a link's token begins, so that it is never taken for a key."""
LINK_ID = "link_"
"""How a link's id begins, where a key's begins otherwise."""
MAX_TOKEN = 128
MAX_MEMBERS = 256
MAX_LINKS = 64
"""Links of one room that are in force at once."""

Role = Literal["driver", "observer"]
GUEST_SCOPES = frozenset({"room"})
"""What a link's holder has: no scope of a key's, so that every route but the room's refuses it."""


@dataclass(frozen=True, slots=True)
class Guest(Principal):
    """The holder of a join link to one room of one project; `epoch` is the room's count of cleanups at its making."""

    room_id: str = ""
    role: Role = "observer"
    user_id: str | None = None
    epoch: int = 0
    expires_at: str | None = None


class LinkView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A link as lists show it; never its token. Times are ISO 8601 in UTC."""

    id: str
    name: str
    role: Role
    created_at: str
    user_id: str | None = None
    expires_at: str | None = None


class MemberView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A member as lists show it; `present` until its last sign of life runs out. Times are ISO 8601 in UTC."""

    user_id: str
    role: Role
    joined_at: str
    present: bool = False
    present_until: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A member as the room's stream tells it."""

    role: Role
    joined_at: str


Members = Mapping[str, Member]


def evolve(members: Members, event: Event) -> Members:
    """The members after one stamped event of the room's stream."""
    if event.type == JOINED:
        user = str(event.payload["userId"])
        old = members.get(user)
        return {**members, user: Member(event.payload["role"], old.joined_at if old else event.created_at)}
    if event.type == LEFT:
        return {user: member for user, member in members.items() if user != event.payload["userId"]}
    return members


def require_driver(members: Members, user_id: str | None) -> None:
    """FORBIDDEN when this person is in the room to look only."""
    member = members.get(user_id) if user_id else None
    if member is not None and member.role == "observer":
        raise error("FORBIDDEN", "an observer may look at this room, not run or say anything in it", admitted="no")


class LinkRing:
    """Every link in force: its holder by the token's hash, its view by id, ids by room."""

    def __init__(self) -> None:
        self.guests: dict[str, Guest] = {}
        self.views: dict[str, LinkView] = {}
        self.hashes: dict[str, str] = {}
        self.rooms: dict[tuple[str, str], list[str]] = {}


def evolve_links(ring: LinkRing, event: Event) -> LinkRing:
    """The ring after one event; what is not stamped changes nothing. Works in place."""
    if not trusted(event):
        return ring
    payload = event.payload
    if event.type == LINK_CREATED:
        _add(ring, payload, event.created_at)
    elif event.type == LINK_REVOKED and payload["linkId"] in ring.hashes:
        guest = ring.guests.pop(ring.hashes.pop(payload["linkId"]))
        ring.views.pop(payload["linkId"])
        address = (str(guest.project), guest.room_id)
        ring.rooms[address].remove(payload["linkId"])
        if not ring.rooms[address]:
            del ring.rooms[address]
    return ring


def _add(ring: LinkRing, payload: Mapping[str, Any], created_at: str) -> None:
    link = str(payload["linkId"])
    ring.guests[payload["sha256"]] = Guest(
        link,
        payload["project"],
        GUEST_SCOPES,
        room_id=payload["roomId"],
        role=payload["role"],
        user_id=payload.get("userId"),
        epoch=payload["epoch"],
        expires_at=payload.get("expiresAt"),
    )
    ring.hashes[link] = payload["sha256"]
    ring.views[link] = LinkView(
        id=link,
        name=payload["name"],
        role=payload["role"],
        created_at=created_at,
        user_id=payload.get("userId"),
        expires_at=payload.get("expiresAt"),
    )
    ring.rooms.setdefault((payload["project"], payload["roomId"]), []).append(link)


def expired(expires_at: str | None, now: datetime) -> bool:
    """Whether this time has come."""
    return expires_at is not None and datetime.fromisoformat(expires_at) <= now
