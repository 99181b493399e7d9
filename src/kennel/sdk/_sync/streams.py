# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns the handles on streams: appending, reading, following, waiting, checking, exporting.

Called by programs through `itx.streams`. Invariant: a handle holds a path only; nothing but `append` creates a stream,
and no append is sent twice unless each of its events has an idempotency key.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

from kennel.sdk._sync.following import Export, Following
from kennel.sdk._sync.transport import Transport
from kennel.sdk.deadline import SLICE, Deadline
from kennel.sdk.messages import event_of
from kennel.sdk.names import segment, stream_segments
from kennel.sdk.records import Event, EventList, StreamPage, Verification, event_bodies, repeatable
from kennel.wire.errors import KennelError, error

PAGE = 500
"""Events in one answer at most."""


class Stream:
    """One stream, by its path."""

    def __init__(self, transport: Transport, project_route: str, path: str) -> None:
        address = stream_segments(path)
        self._transport = transport
        self._route = f"{project_route}/streams{address}"
        self._verification = f"{project_route}/stream-verification{address}"
        self.path = path

    def __repr__(self) -> str:
        return f"Stream({self.path!r})"

    def append(self, events: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Event]:
        """Appends one event or a batch, which lands whole or not at all; returns them as they are kept.

        An event is a dict of `type` and, as wanted, `payload`, `metadata`, `idempotency_key` (an event that the stream
        has under this key is returned instead) and `offset` (it lands exactly there, or OFFSET_CONFLICT).
        """
        bodies = event_bodies(events)
        answer = self._transport.call(
            "POST", self._route, EventList, body={"events": bodies}, repeat=repeatable(bodies)
        )
        return answer.events

    def read(
        self, *, after: int = 0, before: int | None = None, types: str | Sequence[str] | None = None, limit: int = PAGE
    ) -> list[Event]:
        """Up to `limit` events with after < offset < before, oldest first; STREAM_NOT_FOUND for an unknown stream."""
        found: list[Event] = []
        query = _query(after, types) | ({} if before is None else {"before": str(before)})
        while len(found) < limit:
            size = min(PAGE, limit - len(found))
            query["limit"] = str(size)
            page = self._transport.call("GET", self._route, EventList, query=query, repeat=True)
            found += page.events
            if len(page.events) < size:
                break
            query["after"] = str(found[-1].offset)
        return found

    def events(self, *, after: int = 0, types: str | Sequence[str] | None = None) -> Following[Event]:
        """An iterator over the events after offset `after`, then over new ones as they land, without end.

        Lost connections are made again where they broke. Use it in a `with` block, or `close` it.
        """
        query = _query(after, types) | {"follow": "true"}
        return Following(self._transport, self._route, query, event_of, resume=True)

    def wait_for_event(
        self, types: str | Sequence[str] | None = None, *, after: int = 0, timeout: float = 30.0
    ) -> Event:
        """The first event after offset `after` of one of `types`, from history or yet to come.

        WAIT_TIMEOUT after `timeout` seconds; STREAM_NOT_FOUND when the stream does not exist.
        """
        deadline = Deadline(timeout)
        while True:
            query = _query(after, types) | {"waitMs": deadline.slice()}
            try:
                page = self._transport.call("GET", self._route, EventList, query=query, extra=SLICE, repeat=True)
                return page.events[0]
            except KennelError as failure:
                if failure.code != "WAIT_TIMEOUT" or failure.admitted is not None:
                    raise
                if deadline.over:
                    raise error("WAIT_TIMEOUT", f"no such event came in {deadline.seconds:g} s") from None

    def verify(self) -> Verification:
        """Has the server check the stream against its hash chain."""
        return self._transport.call("GET", self._verification, Verification, repeat=True, extra=None)

    def export(self) -> Export:
        """An iterator over the whole stream as JSON lines (bytes), up to where it ends now; holds one page at most."""
        return Export(self._transport, self._route)


class Streams:
    """The streams of one project."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._route = f"/v1/projects/{segment(project)}"

    def get(self, path: str) -> Stream:
        """A handle on a stream, whether it exists or not; no I/O. INVALID_PATH unless `path` begins with a slash."""
        return Stream(self._transport, self._route, path)

    def list(self, prefix: str = "/", *, limit: int | None = None) -> builtins.list[str]:
        """The paths of the streams at or below `prefix`, in byte order, all or the first `limit`."""
        query = {"prefix": prefix}
        found: builtins.list[str] = []
        while limit is None or len(found) < limit:
            query["limit"] = str(PAGE if limit is None else min(PAGE, limit - len(found)))
            page = self._transport.call("GET", f"{self._route}/streams", StreamPage, query=query, repeat=True)
            found += [row.path for row in page.streams]
            if page.cursor is None or not page.streams or page.cursor == query.get("cursor"):
                break
            query["cursor"] = page.cursor
        return found


def _query(after: int, types: str | Sequence[str] | None) -> dict[str, str]:
    """The query that both reading and following begin with."""
    given = {"after": str(after)}
    if types is not None:
        given["types"] = types if isinstance(types, str) else ",".join(types)
    return given
