"""Owns the shapes of answers that only clients read; the ones the API shares are in `kennel.wire.results`.

Called by both halves of the SDK. Invariant: what a server adds is ignored, what a shape needs and is missing or of the
wrong type is PROTOCOL_VIOLATION; nothing in an answer picks a class.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from kennel.wire.errors import error
from kennel.wire.results import ExecResult, SandboxView, UsageView

T = TypeVar("T")


class Shape(msgspec.Struct, rename="camel", kw_only=True):
    """What every shape here has in common: camelCase on the wire, fields by name."""


class SandboxPage(Shape):
    """One page of a list of sandboxes; `cursor` is None on the last."""

    sandboxes: list[SandboxView]
    cursor: str | None = None


class UsagePage(Shape):
    """One page of what running sandboxes use; `cursor` is None on the last."""

    usage: list[UsageView]
    cursor: str | None = None


class RoomExec(Shape):
    """What a room's command left, and the room's sandbox by its public name."""

    result: ExecResult
    sandbox_name: str


class Message(Shape):
    """One line of a room's talk; `ts` is when it was said, as the server writes it."""

    role: str
    text: str
    ts: str | int | float | None = None
    user_id: str | None = None


class RoomReply(Shape):
    """The model's answer and the room's latest messages, oldest first."""

    reply: str
    messages: list[Message] = []


class RoomCleanup(Shape):
    """How cleaning a room went: `errors` is empty when all of it went well."""

    cleaned: bool
    room_id: str | None = None
    errors: list[str] = []


class KeyView(Shape):
    """A key as lists show it, never its secret; `project` is None for a key of the whole installation."""

    id: str
    name: str
    scopes: list[str]
    project: str | None = None
    created_at: str | None = None
    revoked_at: str | None = None


class NewKey(Shape):
    """A key that was just made: `token` is shown this once."""

    token: str
    key: KeyView


class KeyList(Shape):
    keys: list[KeyView]


class ProjectView(Shape):
    """A project; `created_at` is ISO 8601 in UTC."""

    name: str
    created_at: str | None = None


class ProjectList(Shape):
    projects: list[ProjectView]


class ImageView(Shape):
    """An image that is on the server; sandboxes are made from its digest, whatever its name means later.

    `size` is in bytes, 0 for `host`, which is no file; `created` in seconds since 1970.
    """

    name: str
    digest: str
    kind: str = ""
    size: int = 0
    created: float = 0.0
    description: str = ""


class ImageList(Shape):
    images: list[ImageView]


class SessionList(Shape):
    sessions: list[str]


def encoded(body: Any) -> bytes:
    """A request's body as JSON; VALIDATION_FAILED for what JSON cannot hold, such as bytes that are not UTF-8."""
    try:
        return msgspec.json.encode(body)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as failure:
        hint = "text must be Unicode; bytes can go through stdin"
        raise error("VALIDATION_FAILED", f"this cannot be sent: {failure}", hint=hint, admitted="no") from failure


def decoded(raw: bytes, shape: type[T]) -> T:
    """A good answer's body as `shape`; PROTOCOL_VIOLATION when it is something else."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as failure:
        message = f"the server's answer is not what this version understands: {failure}"
        hint = "are client and server of the same version, and is it a Kennel server at all?"
        raise error("PROTOCOL_VIOLATION", message, hint=hint, admitted="unknown") from failure


def body_or_none(raw: bytes) -> Any:
    """The JSON in an error answer; None when it is not JSON."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
