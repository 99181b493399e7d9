"""Owns what may be appended at all: shapes, sizes, and who may write a platform type or key.

Called by the event log before anything is looked up or queued. Invariant: a refused batch has touched nothing, and an
unstamped writer can neither write a platform type nor name a platform key, whether or not that key exists.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from kennel.domain.chain import canonical
from kennel.domain.event import PLATFORM_KEY_PREFIX, NewEvent, Source, is_platform_type
from kennel.domain.event_types import check_payload
from kennel.wire.errors import KennelError, error

MAX_PAYLOAD = 256 * 1024
"""Bytes of JSON in one payload."""
MAX_METADATA = 16 * 1024
"""Bytes of JSON in one metadata object."""
MAX_BATCH = 500
"""Events in one append."""
MAX_BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of JSON in one append."""
MAX_KEY = 256
"""Characters in an idempotency key."""
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*(/[A-Za-z0-9][A-Za-z0-9._:-]*)*")
MAX_TYPE = 128


class Draft(msgspec.Struct, frozen=True):
    """An admitted event: its values as the JSON round trip leaves them, beside their canonical texts."""

    type: str
    payload: dict[str, Any]
    metadata: dict[str, Any]
    key: str | None
    source: Source
    offset: int | None
    payload_json: str
    metadata_json: str
    source_json: str


def _refuse(index: int, field: str, why: str) -> KennelError:
    return error("INVALID_EVENT", f"event {index}: {field} {why}", details={"index": index, "field": field})


def _json(index: int, field: str, value: object, limit: int) -> tuple[dict[str, Any], str]:
    """A JSON object as it will read back, and its canonical text."""
    if not isinstance(value, dict):
        raise _refuse(index, field, "must be an object")
    try:
        raw = canonical(value)
        if len(raw) > limit:
            raise error(
                "PAYLOAD_TOO_LARGE",
                f"event {index}: {field} has {len(raw)} bytes of JSON, at most {limit} are taken",
                details={"index": index, "field": field, "bytes": len(raw), "limit": limit},
            )
        return msgspec.json.decode(raw, type=dict[str, Any]), raw.decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as e:
        if isinstance(e, KennelError):
            raise
        raise _refuse(index, field, "is not plain JSON") from None


def possible_type(type_: object) -> bool:
    """Whether an event of this type can exist."""
    return isinstance(type_, str) and len(type_) <= MAX_TYPE and _TYPE.fullmatch(type_) is not None


def possible_key(key: object) -> bool:
    """Whether an event under this idempotency key can exist."""
    return isinstance(key, str) and 0 < len(key) <= MAX_KEY and key.isprintable()


def _check_type(index: int, event: NewEvent) -> None:
    if not possible_type(event.type):
        raise _refuse(index, "type", f"must be 1 to {MAX_TYPE} characters like 'noun/what-happened'")
    if is_platform_type(event.type) and not event.source.platform:
        raise error(
            "PLATFORM_TYPE_REFUSED",
            f"event {index}: '{event.type}' is written by Kennel's own services only",
            details={"index": index, "type": event.type},
        )


def _check_key(index: int, event: NewEvent) -> None:
    key = event.idempotency_key
    if key is None:
        return
    if not possible_key(key):
        raise _refuse(index, "idempotencyKey", f"must be 1 to {MAX_KEY} printable characters")
    if key.startswith(PLATFORM_KEY_PREFIX) and not event.source.platform:
        raise error(
            "PLATFORM_KEY_REFUSED",
            f"event {index}: keys that begin with '{PLATFORM_KEY_PREFIX}' belong to Kennel's own services",
            details={"index": index},
        )


def admit(events: Sequence[NewEvent]) -> list[Draft]:
    """The batch as drafts.

    Refuses with INVALID_EVENT, PAYLOAD_TOO_LARGE, PLATFORM_TYPE_REFUSED or PLATFORM_KEY_REFUSED.
    """
    if not 0 < len(events) <= MAX_BATCH:
        raise error("INVALID_EVENT", f"an append takes 1 to {MAX_BATCH} events, not {len(events)}")
    drafts, total = [], 0
    for index, event in enumerate(events):
        _check_type(index, event)
        _check_key(index, event)
        offset = event.offset
        if offset is not None and (not isinstance(offset, int) or isinstance(offset, bool) or not 1 <= offset < 2**53):
            raise _refuse(index, "offset", "must be a positive whole number")
        payload, payload_json = _json(index, "payload", event.payload, MAX_PAYLOAD)
        if event.source.platform and is_platform_type(event.type):
            check_payload(index, event.type, payload)
        metadata, metadata_json = _json(index, "metadata", event.metadata, MAX_METADATA)
        total += len(payload_json) + len(metadata_json)
        drafts.append(
            Draft(
                type=event.type,
                payload=payload,
                metadata=metadata,
                key=event.idempotency_key,
                source=event.source,
                offset=offset,
                payload_json=payload_json,
                metadata_json=metadata_json,
                source_json=canonical(event.source).decode(),
            )
        )
    if total > MAX_BATCH_BYTES:
        raise error("PAYLOAD_TOO_LARGE", f"the batch has {total} bytes of JSON, at most {MAX_BATCH_BYTES} are taken")
    return drafts
