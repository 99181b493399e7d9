"""Owns live figures of running sandboxes: CPU as a rate between two looks, memory, disk, processes.

Called by the console's pages and routes/usage. Invariants: one look per sandbox and second, however many ask; a look
that fails or takes long costs its figure, not the page; what is kept is bounded, and nothing looks by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kennel.domain.instance_type import INSTANCE_TYPES
from kennel.wire.errors import KennelError
from kennel.wire.node import Counters
from kennel.wire.results import SandboxView, UsageView

READ_SECONDS = 2.0
FRESH_SECONDS = 1.0
MAX_KEPT = 2048
MAX_HISTORIES = 256
"""Sandboxes whose past looks are kept: with MAX_SAMPLES of some 150 bytes each at most 9 MiB."""
MAX_SAMPLES = 240
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Figures:
    """What a sandbox uses of what its type allows, as parts of one; `cpu` is None until two looks were taken."""

    cpu: float | None
    counters: Counters
    memory_limit: int

    @property
    def memory(self) -> float:
        return _part(self.counters.memory, self.memory_limit)

    @property
    def disk(self) -> float:
        return _part(self.counters.disk_used, self.counters.disk_size)


@dataclass(frozen=True, slots=True)
class Sample:
    """A look that is kept: seconds on this process's clock, and what was seen."""

    at: float
    figures: Figures


@dataclass(slots=True)
class _Look:
    at: float
    figures: Figures


class Usage:
    """`Usage(read)`, where `read` asks the node for one sandbox's counters."""

    def __init__(
        self, read: Callable[[str], Awaitable[Counters]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._clock = read, clock
        self._looks: OrderedDict[str, _Look] = OrderedDict()
        self._past: OrderedDict[str, deque[Sample]] = OrderedDict()
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def of(self, views: Sequence[SandboxView]) -> dict[str, Figures]:
        """Figures by sandbox id, of those that run and answer."""
        running = [view for view in views if view.running]
        found = await asyncio.gather(*(self._figures(view) for view in running))
        while len(self._looks) > MAX_KEPT:
            self._looks.popitem(last=False)
        return {view.sandbox_id: one for view, one in zip(running, found, strict=True) if one is not None}

    async def views(self, views: Sequence[SandboxView]) -> list[UsageView]:
        """What each of those that run and answer uses, in the order given."""
        found = await self.of(views)
        return [_view(view, found[view.sandbox_id]) for view in views if view.sandbox_id in found]

    async def _figures(self, view: SandboxView) -> Figures | None:
        async with self._gate:
            now, last = self._clock(), self._looks.get(view.sandbox_id)
            if last is not None and now - last.at < FRESH_SECONDS:
                return last.figures
            try:
                async with asyncio.timeout(READ_SECONDS):
                    counters = await self._read(view.sandbox_id)
            except (KennelError, TimeoutError):
                return None
            kind = INSTANCE_TYPES[view.instance_type]
            figures = Figures(_rate(last, now, counters, kind.milli_cpu), counters, kind.memory)
            self._looks[view.sandbox_id] = _Look(now, figures)
            self._looks.move_to_end(view.sandbox_id)
            self._keep(view.sandbox_id, Sample(now, figures))
            return figures

    def _keep(self, sandbox_id: str, sample: Sample) -> None:
        self._past.setdefault(sandbox_id, deque(maxlen=MAX_SAMPLES)).append(sample)
        self._past.move_to_end(sandbox_id)
        while len(self._past) > MAX_HISTORIES:
            self._past.popitem(last=False)

    def past(self, sandbox_id: str, seconds: float) -> list[tuple[float, Figures]]:
        """The looks of the last `seconds`, each with how many seconds ago it was, the oldest first."""
        now = self._clock()
        return [(now - one.at, one.figures) for one in self._past.get(sandbox_id, ()) if now - one.at <= seconds]


def _view(view: SandboxView, figures: Figures) -> UsageView:
    counters, kind = figures.counters, INSTANCE_TYPES[view.instance_type]
    return UsageView(
        path=view.path,
        name=view.name,
        instance_type=view.instance_type,
        cpu_seconds=round(counters.cpu_seconds, 6),
        cpu_limit=kind.milli_cpu / 1000,
        memory=counters.memory,
        memory_limit=figures.memory_limit,
        disk=counters.disk_used,
        disk_limit=counters.disk_size,
        processes=counters.pids,
        process_limit=kind.pids,
        oom_kills=counters.oom_kills,
    )


def _rate(last: _Look | None, now: float, counters: Counters, milli_cpu: int) -> float | None:
    """The part of the type's CPU that was used since the last look; None for a first look, or after a restart."""
    if last is None or counters.cpu_seconds < last.figures.counters.cpu_seconds or now <= last.at:
        return None
    used = (counters.cpu_seconds - last.figures.counters.cpu_seconds) / (now - last.at)
    return min(1.0, used * 1000 / milli_cpu)


def _part(used: int, limit: int) -> float:
    return min(1.0, used / limit) if limit > 0 else 0.0
