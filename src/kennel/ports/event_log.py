"""What services need from the durable log of streams; `adapters/sql` provides it over SQLite and PostgreSQL.

Invariant: an append is atomic and durable when it returns, and by then every listener of this process has seen it;
offsets of a stream count from 1 without holes; no follower and no listener ever misses an event or sees one twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import msgspec

from kennel.domain.chain import Fault
from kennel.domain.event import Event, Gap, NewEvent

Listener = Callable[[Event], None]
"""Called on the event loop for each committed event, in order; it must be quick and must not raise."""


class Checkpoint(msgspec.Struct, frozen=True):
    """A fold's state (its own JSON text) after offset `offset`, made by version `version` of the fold."""

    path: str
    version: int
    offset: int
    state: str


class EventLog(Protocol):
    """Streams of events, each addressed by (project, path)."""

    async def append(self, project: str, path: str, events: Sequence[NewEvent]) -> list[Event]:
        """The committed events in the order asked, old ones where a key was known; creates the stream when needed.

        Refuses the whole batch with INVALID_PATH, INVALID_EVENT, PAYLOAD_TOO_LARGE, PLATFORM_TYPE_REFUSED,
        PLATFORM_KEY_REFUSED, IDEMPOTENCY_CONFLICT, OFFSET_CONFLICT; LOG_UNAVAILABLE when the store does not answer.
        """
        ...

    async def read(
        self,
        project: str,
        path: str,
        *,
        after: int = 0,
        before: int | None = None,
        types: Sequence[str] | None = None,
        limit: int = 500,
    ) -> list[Event]:
        """Up to `limit` (1 to 500) events with after < offset < before, oldest first; STREAM_NOT_FOUND when unknown.

        `types` None means all, an empty sequence none.
        """
        ...

    async def by_key(self, project: str, path: str, key: str) -> Event | None:
        """The event under this idempotency key; None when there is none, or no such stream."""
        ...

    async def head(self, project: str, path: str) -> int | None:
        """The last offset; None when the stream does not exist."""
        ...

    async def paths(self, project: str, prefix: str = "/", *, after: str = "", limit: int = 500) -> list[str]:
        """Existing streams at or below `prefix`, in byte order, those after `after`."""
        ...

    def follow(self, project: str, path: str, *, after: int = 0) -> AsyncIterator[Event | Gap]:
        """Every event after offset `after`, history first, then live; one that falls behind gets a Gap and the end.

        STREAM_NOT_FOUND when the stream does not exist.
        """
        ...

    def listen(self, project: str, path: str, listener: Listener) -> Callable[[], None]:
        """Calls `listener` for every event of the stream committed from now on; returns the way to stop."""
        ...

    async def checkpoints(self, project: str, processor: str, paths: Sequence[str] | None = None) -> list[Checkpoint]:
        """Saved states of a fold, of all its streams or of those named."""
        ...

    async def save_checkpoints(self, project: str, processor: str, states: Sequence[Checkpoint]) -> None:
        """Keeps states for the next start; losing one costs a replay, nothing else."""
        ...

    async def verify(self, project: str, path: str) -> list[Fault]:
        """Where the stream disagrees with its hash chain; empty when it holds."""
        ...

    async def trim(self, project: str, path: str, through: int) -> int:
        """Deletes the events up to this offset and says how many; only after an event on the stream vouches for them.

        The stream's last event stays. Readers from before the cut go on with the first event that is left.
        """
        ...
