"""Owns what an event is: as its writer gives it (`NewEvent`) and as the log keeps it (`Event`).

Called by every service that writes or folds. Invariant: events are never changed after they are committed, and
`source.platform` is set by Kennel's own services alone; `kennel.domain.admission` refuses any other way to get it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kennel.domain.principal import Principal

PLATFORM_PREFIXES = ("sandbox/", "stream/", "secret/", "project/", "room/", "key/", "egress/")
"""Event types that begin so are facts about Kennel itself; only its services may write them."""

PLATFORM_KEY_PREFIX = "kennel:"
"""Idempotency keys that begin so belong to Kennel's services."""


class Source(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Who wrote an event: the key's id, and whether Kennel itself vouches for it (`platform`)."""

    platform: bool = False
    key_id: str | None = None


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to append. `offset` is a precondition: the event lands exactly there or the whole batch is refused."""

    type: str
    payload: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    idempotency_key: str | None = None
    source: Source = Source()
    offset: int | None = None


class Event(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A committed event; camelCase on the wire.

    `offset` counts from 1 without holes in its stream, `position` in the whole log; `created_at` is ISO 8601 in UTC;
    `hash` is the SHA-256 (hex) that chains it to the event before it in its stream.
    """

    position: int
    project: str
    path: str
    offset: int
    type: str
    payload: dict[str, Any]
    metadata: dict[str, Any]
    idempotency_key: str | None
    source: Source
    created_at: str
    hash: str


class Gap(msgspec.Struct, frozen=True, rename="camel"):
    """The end of a follower that fell behind: all up to offset `after` was delivered; follow again from there."""

    after: int
    reason: str = "slow"


def is_platform_type(type_: str) -> bool:
    """Whether only Kennel's services may write this type."""
    return type_.startswith(PLATFORM_PREFIXES)


def trusted(event: Event) -> bool:
    """Whether a fold of platform state may look at this event: it is stamped by Kennel itself."""
    return event.source.platform


def fact(
    who: Principal,
    type_: str,
    payload: dict[str, Any] | None = None,
    *,
    key: str | None = None,
    offset: int | None = None,
    metadata: dict[str, Any] | None = None,
) -> NewEvent:
    """An event of Kennel's own, stamped, on behalf of `who`; `key` is given without its reserved prefix."""
    return NewEvent(
        type=type_,
        payload=payload or {},
        metadata=metadata or {},
        idempotency_key=None if key is None else PLATFORM_KEY_PREFIX + key,
        source=Source(platform=True, key_id=who.key_id),
        offset=offset,
    )
