"""Owns the decision of an append: which events are new, which are old, where they land, or why none does.

Called by the log's writer inside its transaction, with what the stream holds. Invariant: one batch lands whole or not
at all, offsets have no holes, and a new stream begins with `stream/created` as offset 1 of the same transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from kennel.domain.admission import Draft, admit
from kennel.domain.chain import GENESIS, Link, canonical, digest
from kennel.domain.event import Event, NewEvent, fact
from kennel.domain.principal import SYSTEM
from kennel.wire.errors import KennelError, error


class Head(msgspec.Struct, frozen=True):
    """Where a stream ends: the last offset (0 before the first event) and the hash there."""

    offset: int
    hash: str


NOTHING = Head(0, GENESIS)
"""The head of a stream that does not exist."""


class Row(msgspec.Struct, frozen=True):
    """A new event and the texts to store for it."""

    event: Event
    draft: Draft


class Plan(msgspec.Struct, frozen=True):
    """What an append comes to: rows to insert, the head after them, and the answer in the order asked."""

    rows: list[Row]
    head: Head
    answer: list[Event]
    born: bool


def created(project: str, path: str, stream_id: str) -> NewEvent:
    """The first event of every stream."""
    return fact(
        SYSTEM, "stream/created", {"project": project, "path": path, "streamId": stream_id}, key="stream-created"
    )


def announcement(child: str) -> NewEvent:
    """What each ancestor is told of a new stream."""
    return fact(SYSTEM, "stream/child-stream-created", {"childPath": child}, key=f"child:{digest_of(child)}")


def digest_of(path: str) -> str:
    """A path's short stand-in inside an idempotency key, whose length is bounded."""
    return hashlib.sha256(path.encode()).hexdigest()[:40]


def _same(draft: Draft, old: Event, index: int) -> Event:
    """The old event under this draft's key, or the refusal of the batch."""
    details = {"index": index, "idempotencyKey": draft.key, "offset": old.offset}
    if (draft.type, draft.payload_json, draft.metadata_json) != (
        old.type,
        canonical(old.payload).decode(),
        canonical(old.metadata).decode(),
    ):
        raise error(
            "IDEMPOTENCY_CONFLICT",
            f"key '{draft.key}' already names another event, at offset {old.offset}",
            details=details,
        )
    if draft.offset is not None and draft.offset != old.offset:
        raise _misplaced(draft.offset, old.offset, index)
    return old


def _misplaced(asked: int, actual: int, index: int) -> KennelError:
    return error(
        "OFFSET_CONFLICT",
        f"event {index} must land at offset {asked}, but would land at {actual}",
        details={"index": index, "asked": asked, "actual": actual},
    )


class _Planner:
    """One append in the making: a running head and the keys seen so far."""

    def __init__(self, project: str, path: str, head: Head, position: int, now: str) -> None:
        self.project, self.path, self.now = project, path, now
        self.offset, self.hash, self.position = head.offset, head.hash, position
        self.rows: list[Row] = []

    def add(self, draft: Draft) -> Event:
        """Lets a draft land at the next offset."""
        offset = self.offset + 1
        link = Link(
            self.project, self.path, offset, draft.type, draft.key, self.now,
            draft.payload_json, draft.metadata_json, draft.source_json,
        )  # fmt: skip
        self.hash = digest(self.hash, link)
        event = Event(
            position=self.position + len(self.rows) + 1,
            project=self.project,
            path=self.path,
            offset=offset,
            type=draft.type,
            payload=draft.payload,
            metadata=draft.metadata,
            idempotency_key=draft.key,
            source=draft.source,
            created_at=self.now,
            hash=self.hash,
        )
        self.offset = offset
        self.rows.append(Row(event, draft))
        return event


def plan(
    project: str,
    path: str,
    drafts: Sequence[Draft],
    *,
    head: Head,
    existing: Mapping[str, Event],
    position: int,
    now: str,
    stream_id: str,
) -> Plan:
    """Decides one batch against `head` and the events already `existing` under its keys; pure.

    `position` is the log's last global position, `now` ISO 8601. Refuses with IDEMPOTENCY_CONFLICT or OFFSET_CONFLICT,
    and then nothing of the batch, nor the stream, comes to be.
    """
    planner = _Planner(project, path, head, position, now)
    born = head.offset == 0
    if born:
        planner.add(admit([created(project, path, stream_id)])[0])
    keyed = dict(existing)
    answer = []
    for index, draft in enumerate(drafts):
        if draft.key is not None and (old := keyed.get(draft.key)) is not None:
            answer.append(_same(draft, old, index))
            continue
        if draft.offset is not None and draft.offset != planner.offset + 1:
            raise _misplaced(draft.offset, planner.offset + 1, index)
        event = planner.add(draft)
        if draft.key is not None:
            keyed[draft.key] = event
        answer.append(event)
    return Plan(planner.rows, Head(planner.offset, planner.hash), answer, born)
