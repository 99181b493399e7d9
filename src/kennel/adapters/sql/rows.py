"""Owns the translation between table rows and events.

Called by the writer and the reader. Invariant: JSON columns are stored as the canonical text their hash covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kennel.domain.append import Row
from kennel.domain.chain import Link
from kennel.domain.event import Event, Source

_object = msgspec.json.Decoder(dict[str, Any])
_source = msgspec.json.Decoder(Source)

COLUMNS = (
    "position", "project", "path", "offset", "type", "payload", "metadata", "idempotency_key", "source", "created_at",
    "hash",
)  # fmt: skip
"""The events table's columns in the order `to_event` takes them."""


def to_event(row: Sequence[Any]) -> Event:
    """The event of a row in COLUMNS order."""
    return Event(
        position=row[0],
        project=row[1],
        path=row[2],
        offset=row[3],
        type=row[4],
        payload=_object.decode(row[5]),
        metadata=_object.decode(row[6]),
        idempotency_key=row[7],
        source=_source.decode(row[8]),
        created_at=row[9],
        hash=row[10],
    )


def to_link(row: Sequence[Any]) -> tuple[Link, str]:
    """The chain's view of a row in COLUMNS order, and its stored hash; the JSON is left unread."""
    return Link(row[1], row[2], row[3], row[4], row[7], row[9], row[5], row[6], row[8]), row[10]


def to_values(row: Row) -> dict[str, Any]:
    """The values to insert for a planned row."""
    event, draft = row.event, row.draft
    return {
        "position": event.position,
        "project": event.project,
        "path": event.path,
        "offset": event.offset,
        "type": event.type,
        "payload": draft.payload_json,
        "metadata": draft.metadata_json,
        "idempotency_key": event.idempotency_key,
        "source": draft.source_json,
        "created_at": event.created_at,
        "hash": event.hash,
    }
