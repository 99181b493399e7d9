"""Writes docs/events.md from the catalogue of event types (`python tools/event_page.py > docs/events.md`)."""

from __future__ import annotations

import sys
from itertools import groupby

from msgspec import inspect

from kennel.domain.admission import MAX_BATCH, MAX_BATCH_BYTES, MAX_KEY, MAX_METADATA, MAX_PAYLOAD
from kennel.domain.event import PLATFORM_KEY_PREFIX, PLATFORM_PREFIXES
from kennel.domain.event_types import EVENT_TYPES, EventType
from kennel.domain.sandbox_events import MAX_TEXT

HEAD = f"""# Events

Everything that happens is an event on an append-only stream, addressed by project and path. This page lists the events
that Kennel itself writes; it is made from the code (`tools/event_page.py`), and a test keeps the two equal.

## Who may write what

Types that begin with {", ".join(f"`{p}`" for p in PLATFORM_PREFIXES)} are facts about Kennel. Only its
services write them, stamped `source.platform: true` inside; an append from outside is refused with
`PLATFORM_TYPE_REFUSED`, and no fold looks at one that is not stamped. Idempotency keys that begin with
`{PLATFORM_KEY_PREFIX}` are Kennel's too and are refused from outside (`PLATFORM_KEY_REFUSED`) before they
are looked up. Every other type is free for callers to use.
`source.keyId` of every event names the key on whose behalf it was written (`system` for Kennel's own doing).

## What an event holds

`position` (in the whole log), `project`, `path`, `offset` (from 1, without holes in its stream), `type`, `payload`,
`metadata`, `idempotencyKey`, `source`, `createdAt` (ISO 8601, UTC), `hash`.

An append takes 1 to {MAX_BATCH} events and {MAX_BATCH_BYTES // 1024 // 1024} MiB, and lands whole or not at all.
A payload has at most {MAX_PAYLOAD // 1024} KiB of JSON, metadata {MAX_METADATA // 1024} KiB,
a key {MAX_KEY} characters. A key that the stream already knows answers with the old event if type,
payload and metadata are equal; otherwise the
whole batch is refused (`IDEMPOTENCY_CONFLICT`). An event given with `offset` lands exactly there, or the batch is
refused (`OFFSET_CONFLICT`).

`hash` is the hex SHA-256 of the JSON array `[previous hash, project, path, offset, type, idempotencyKey, createdAt,
payload, metadata, source]`, with sorted keys and without blanks; the first event's previous hash is 64 zeros.
`kennel logs --verify` checks it.

## The events

A field with `?` may be left out. Names, ids and paths have at most {MAX_TEXT} characters.
"""


def _kind(kind: inspect.Type) -> str:
    """A field's type in words."""
    match kind:
        case inspect.StrType(max_length=limit):
            return f"text ≤ {limit}" if limit not in (None, MAX_TEXT) else "text"
        case inspect.IntType():
            return "whole number"
        case inspect.FloatType():
            return "number"
        case inspect.BoolType():
            return "true or false"
        case inspect.NoneType():
            return "null"
        case inspect.LiteralType(values=values):
            return " or ".join(f'"{value}"' for value in values)
        case inspect.ListType(item_type=item):
            return f"list of {_kind(item)}"
        case inspect.DictType(value_type=value):
            return f"map of {_kind(value)}"
        case inspect.UnionType(types=types):
            return " or ".join(_kind(t) for t in types)
        case inspect.AnyType():
            return "any value"
        case inspect.StructType(fields=fields):
            return "{" + _fields(fields) + "}"
    raise TypeError(f"no words for {kind}")


def _fields(fields: tuple[inspect.Field, ...]) -> str:
    return ", ".join(f"`{f.encode_name}{'' if f.required else '?'}` {_kind(f.type)}" for f in fields)


def row(event: EventType) -> str:
    """The page's table row of one event type."""
    shape = inspect.type_info(event.payload)
    assert isinstance(shape, inspect.StructType)
    return (
        f"| `{event.name}` | {_fields(shape.fields) or 'nothing'} | {event.stream} | {event.writer} | {event.meaning} |"
    )


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for noun, events in groupby(EVENT_TYPES.values(), key=lambda e: e.name.split("/")[0]):
        parts.append(f"### {noun}\n\n| event | payload | on | written by | says |\n| --- | --- | --- | --- | --- |")
        parts.append("\n".join(row(event) for event in events) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
