"""Owns the sandboxes' projections in memory: each the fold of its own stream, kept as long as it is of use.

Called by the catalogue (status in lists), the lifecycle service and live state. Invariant: when `append_and_fold`
returns, its events are on disk and in the projection; a projection of a stream that does not exist is empty and
creates nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from kennel.control.stream_fold import StreamFold
from kennel.domain import sandbox
from kennel.domain.event import NewEvent
from kennel.domain.sandbox import Projection
from kennel.ports.event_log import Checkpoint, EventLog
from kennel.wire.errors import KennelError

log = logging.getLogger(__name__)

MAX_FOLDS = 20_000
"""Projections kept in memory; the longest unused go first, to a checkpoint."""
WAIT = 10.0
"""Seconds to wait for the own fold after an append; the log delivers before it answers, so this never runs out."""
BATCH = 200
"""Streams whose checkpoints are read by one query."""


class Snapshot(msgspec.Struct, frozen=True):
    """A projection and the offset it stands at."""

    offset: int
    state: Projection


class Projections:
    """`Projections(log)`: projections by (project, path), loaded on first use."""

    def __init__(self, log: EventLog, *, max_folds: int = MAX_FOLDS, version: int = sandbox.VERSION) -> None:
        self._log, self._max, self._version = log, max_folds, version
        self._folds: OrderedDict[tuple[str, str], StreamFold[Projection]] = OrderedDict()
        self._saved: dict[tuple[str, str], int] = {}

    async def fold(self, project: str, path: str) -> StreamFold[Projection]:
        """The live fold of one sandbox's stream."""
        found = self._folds.get((project, path))
        if found is None:
            await self.load(project, [path])
            found = self._folds[(project, path)]
        else:
            self._folds.move_to_end((project, path))
        if not found.live:
            await found.ready()
        return found

    async def get(self, project: str, path: str) -> Projection:
        """The projection now."""
        return (await self.fold(project, path)).state

    async def snapshot(self, project: str, path: str) -> Snapshot:
        """The projection now, with its offset."""
        fold = await self.fold(project, path)
        return Snapshot(fold.offset, fold.state)

    async def wait_until_processed(self, project: str, path: str, offset: int, timeout: float) -> Snapshot:
        """The projection once it has processed `offset`; WAIT_TIMEOUT after `timeout` seconds."""
        fold = await self.fold(project, path)
        with fold.pinned():
            await fold.wait_until(offset, timeout)
        return Snapshot(fold.offset, fold.state)

    async def append_and_fold(self, project: str, path: str, events: Sequence[NewEvent]) -> Projection:
        """Appends to the sandbox's stream and returns the projection that has these events in it."""
        fold = await self.fold(project, path)
        with fold.pinned():
            landed = await self._log.append(project, path, events)
            await fold.wait_until(max(event.offset for event in landed), WAIT)
        return fold.state

    async def load(self, project: str, paths: Sequence[str]) -> None:
        """Brings many projections in, each from its checkpoint if that was made by this version."""
        missing = [path for path in paths if (project, path) not in self._folds]
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            found = {c.path: c for c in await self._log.checkpoints(project, sandbox.PROCESSOR, batch)}
            for path in batch:
                self._folds.setdefault((project, path), self._fold_from(project, path, found.get(path)))
            await asyncio.gather(*(self._folds[(project, path)].ready() for path in batch))
        await self._evict()

    def _fold_from(self, project: str, path: str, saved: Checkpoint | None) -> StreamFold[Projection]:
        state, offset = sandbox.EMPTY, 0
        if saved is not None and saved.version == self._version:
            try:
                state, offset = msgspec.json.decode(saved.state, type=Projection), saved.offset
            except msgspec.MsgspecError:
                state, offset = sandbox.EMPTY, 0  # a checkpoint that does not read costs a replay
        self._saved[(project, path)] = offset
        return StreamFold(self._log, project, path, state, sandbox.evolve, offset=offset)

    async def _evict(self) -> None:
        """Lets the longest unused go until the number fits; those somebody watches stay."""
        surplus = len(self._folds) - self._max
        if surplus <= 0:
            return
        going = [a for a, fold in list(self._folds.items())[:surplus] if not fold.in_use]
        try:
            await self.save(going)
        except KennelError as fault:
            log.warning("checkpoints were not saved, the next look replays: %s", fault)
        for address in going:
            fold = self._folds.pop(address, None)
            self._saved.pop(address, None)
            if fold is not None:
                fold.close()

    async def save(self, addresses: Sequence[tuple[str, str]] | None = None) -> None:
        """Keeps checkpoints of what changed since the last one, of all or of those named; called at a clean end."""
        changed: dict[str, list[Checkpoint]] = {}
        for address in self._folds if addresses is None else addresses:
            fold = self._folds.get(address)
            if fold is None or fold.offset <= self._saved.get(address, 0):
                continue
            text = msgspec.json.encode(fold.state).decode()
            changed.setdefault(address[0], []).append(Checkpoint(address[1], self._version, fold.offset, text))
        for project, states in changed.items():
            for start in range(0, len(states), BATCH):
                await self._log.save_checkpoints(project, sandbox.PROCESSOR, states[start : start + BATCH])
            for state in states:
                self._saved[(project, state.path)] = state.offset
