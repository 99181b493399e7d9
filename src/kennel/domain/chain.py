"""Owns the hash chain: each event's SHA-256 covers its own words and the hash before it in its stream.

Called by the append plan (to make links) and by verification. Invariant: the covered bytes are the stored JSON texts
themselves, so what is verified is what is kept, not a re-encoding of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

GENESIS = "0" * 64
"""The hash that precedes the first event of every stream."""

_encoder = msgspec.json.Encoder(order="sorted")


class Link(msgspec.Struct, frozen=True):
    """One event as the chain sees it: JSON columns as their stored text."""

    project: str
    path: str
    offset: int
    type: str
    idempotency_key: str | None
    created_at: str
    payload: str
    metadata: str
    source: str


class Fault(msgspec.Struct, frozen=True, rename="camel"):
    """Where a stream stops agreeing with its chain, and how."""

    project: str
    path: str
    offset: int
    reason: str


def canonical(value: Any) -> bytes:
    """The one JSON text of a value: keys sorted at every level, no blanks, UTF-8."""
    return _encoder.encode(value)


def digest(previous: str, link: Link) -> str:
    """The hex SHA-256 that this link must carry after `previous`."""
    body = canonical(
        [
            previous,
            link.project,
            link.path,
            link.offset,
            link.type,
            link.idempotency_key,
            link.created_at,
            msgspec.Raw(link.payload.encode()),
            msgspec.Raw(link.metadata.encode()),
            msgspec.Raw(link.source.encode()),
        ]
    )
    return hashlib.sha256(body).hexdigest()


TRIMMED = "egress/trimmed"
"""The event that vouches for what aged out before the first event that is left."""


def verify(
    links: Iterable[tuple[Link, str]],
    head: tuple[int, str],
    address: tuple[str, str],
    base: tuple[int, str] | None = None,
) -> Iterator[Fault]:
    """Every fault of the stream at `address`, given its links with stored hashes in offset order and its recorded head.

    A changed event, a hole, and events cut off at the end are each a fault; the check goes on from the stored hash, so
    one changed event is one fault. `base` is the offset and hash up to which the stream was trimmed, as an event that
    is still on it says (that event is in the chain, so a forged one is a fault itself).
    """
    before, previous = base or (0, GENESIS)
    expected = before + 1
    for link, stored in links:
        if link.offset != expected:
            yield Fault(*address, expected, f"offset {expected} is missing, {link.offset} follows")
        if digest(previous, link) != stored:
            yield Fault(*address, link.offset, "the event does not match its hash")
        previous, expected = stored, link.offset + 1
    if (expected - 1, previous) != head:
        yield Fault(*address, head[0], f"the stream ends at offset {expected - 1}, its head says {head[0]}")
