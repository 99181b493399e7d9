"""Owns looking at a sandbox from outside: its projection now, once an offset is in it, or live.

Called by the API's `/projection` and `/live` routes. Invariant: a look needs the name's claim and nothing else, so it
works before the birth and after the end; it wakes nothing, and of an unclaimed name it creates nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from kennel.control.catalogue import Catalogue
from kennel.control.live_state import LiveState, Update
from kennel.control.projection import Projections, Snapshot


class Observation:
    """`Observation(catalogue, projections)`; `close` it to end every subscription."""

    def __init__(self, catalogue: Catalogue, projections: Projections) -> None:
        self._catalogue, self._projections = catalogue, projections
        self._live = LiveState(projections)

    async def snapshot(self, project: str, path: str) -> Snapshot:
        """The projection and its offset now; SANDBOX_NOT_FOUND."""
        await self._catalogue.find(project, path)
        return await self._projections.snapshot(project, path)

    async def wait_until_processed(self, project: str, path: str, offset: int, timeout: float) -> Snapshot:
        """The projection once it has processed `offset`; WAIT_TIMEOUT after `timeout` seconds, SANDBOX_NOT_FOUND."""
        await self._catalogue.find(project, path)
        return await self._projections.wait_until_processed(project, path, offset, timeout)

    async def subscribe(self, project: str, path: str) -> AsyncIterator[Update]:
        """A snapshot, then diffs (see `Update`), to be closed by its reader; SANDBOX_NOT_FOUND."""
        await self._catalogue.find(project, path)
        return self._live.subscribe(project, path)

    def close(self) -> None:
        """Ends every subscription with a gap."""
        self._live.close()
