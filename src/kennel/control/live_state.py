"""Owns live views of a sandbox's projection: a snapshot, then only what changed.

Called by the API's `/live` route. Invariant: a subscriber holds one state and no queue, so a slow one costs nothing:
what changed meanwhile reaches it as one diff. Looking wakes nothing and creates nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec

from kennel.control.projection import Projections
from kennel.control.stream_fold import StreamFold
from kennel.domain.difference import difference
from kennel.domain.event import Event
from kennel.domain.sandbox import Projection


class Update(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a subscription.

    `snapshot` carries `state`; `diff` carries `operations` (JSON Patch) that lead from revision `previous` to
    `revision`; `gap` says that no more will come and to subscribe afresh. Revisions are offsets of the stream.
    """

    kind: Literal["snapshot", "diff", "gap"]
    revision: int
    previous: int | None = None
    state: dict[str, Any] | None = None
    operations: list[dict[str, Any]] | None = None


def _plain(state: Projection) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(state)
    return plain


class LiveState:
    """`LiveState(projections)`."""

    def __init__(self, projections: Projections) -> None:
        self._projections = projections
        self._closing = asyncio.Event()
        self._bells: set[asyncio.Event] = set()

    async def get(self, project: str, path: str) -> Update:
        """The state now, as a subscription's first message."""
        fold = await self._projections.fold(project, path)
        return Update("snapshot", fold.offset, state=_plain(fold.state))

    async def subscribe(self, project: str, path: str) -> AsyncIterator[Update]:
        """The state now, then a diff whenever it changed; ends with a gap when the service closes."""
        fold = await self._projections.fold(project, path)
        bell = asyncio.Event()

        def ring(event: Event) -> None:
            bell.set()

        stop = fold.watch(ring)
        self._bells.add(bell)
        try:
            async for update in self._updates(fold, bell):
                yield update
        finally:
            stop()
            self._bells.discard(bell)

    async def _updates(self, fold: StreamFold[Projection], bell: asyncio.Event) -> AsyncIterator[Update]:
        told, revision = fold.state, fold.offset
        yield Update("snapshot", revision, state=_plain(told))
        while not self._closing.is_set():
            await bell.wait()
            bell.clear()
            if fold.state == told:
                continue
            changes = difference(_plain(told), _plain(fold.state))
            update = Update("diff", fold.offset, previous=revision, operations=changes)
            told, revision = fold.state, fold.offset
            yield update
        yield Update("gap", revision)

    def close(self) -> None:
        """Ends every subscription."""
        self._closing.set()
        for bell in self._bells:
            bell.set()
