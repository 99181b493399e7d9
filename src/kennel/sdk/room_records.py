"""Owns the shapes of what a room's routes answer beside its talk, and what watching a room brings.

Called by both halves of the SDK. Invariant: as in `answers`; a moment that has an event is on the room's stream, one
that has none was only seen.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kennel.sdk.answers import Message, Shape, decoded
from kennel.sdk.messages import Message as Sent
from kennel.sdk.records import Event


class RoomSettings(Shape):
    """A room's settings; None is the installation's own. `max_rounds`: how often the model is asked in one turn."""

    history: int | None = None
    context: int | None = None
    max_rounds: int | None = None
    instructions: str | None = None
    turns_per_minute: int | None = None
    commands_per_minute: int | None = None


class RoomView(Shape):
    """A room as lists show it; `waiting` counts its turns without an end, `cwd` is where its shell was.

    Times are ISO 8601 in UTC."""

    room_id: str
    opened_at: str
    active_at: str
    title: str | None = None
    settings: RoomSettings = msgspec.field(default_factory=RoomSettings)
    sandbox: str | None = None
    members: int = 0
    said: int = 0
    waiting: int = 0
    cwd: str | None = None


class RoomTalk(RoomView):
    """A room with its latest messages, oldest first."""

    messages: list[Message] = []


class RoomPage(Shape):
    rooms: list[RoomView]
    cursor: str | None = None


class Member(Shape):
    """Somebody in a room: a `driver` may run and speak, an `observer` only looks; `present` until `present_until`."""

    user_id: str
    role: str
    joined_at: str
    present: bool = False
    present_until: str | None = None


class MemberList(Shape):
    members: list[Member]


class JoinLink(Shape):
    """A join link as lists show it, never its token."""

    id: str
    role: str
    created_at: str
    name: str = ""
    user_id: str | None = None
    expires_at: str | None = None


class NewJoinLink(Shape):
    """A link that was just made: `token` is shown this once and stands where a key would, for this room alone."""

    token: str
    link: JoinLink


class JoinLinkList(Shape):
    links: list[JoinLink]


class Revoked(Shape):
    revoked: list[str]


class RoomMoment(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened in a room: an event of its stream, or what passes by (`delta`, `queue`, `command` …)."""

    kind: str
    payload: dict[str, Any]
    event: Event | None = None


def moment_of(sent: Sent) -> RoomMoment | None:
    """What a message of a room's watch says; None for a gap, after which the room is simply watched on."""
    if sent.event == "gap":
        return None
    if sent.event == "message":
        event = decoded(sent.data, Event)
        return RoomMoment(kind=event.type, payload=event.payload, event=event)
    return RoomMoment(kind=sent.event, payload=decoded(sent.data, dict[str, Any]))


def settings_body(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings by their Python names as the wire has them; TypeError for a name that is none."""
    names = {field.name: field.encode_name for field in msgspec.structs.fields(RoomSettings)}
    unknown = sorted(settings.keys() - names.keys())
    if unknown:
        raise TypeError(f"a room has no setting {', '.join(unknown)}")
    return {names[name]: value for name, value in settings.items()}
