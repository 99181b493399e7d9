"""Owns the usage page of a sandbox: what it used over the last minutes, as curves, and what it sent and received.

Called by console/app.py. Invariants: looking wakes nothing; curves are of the looks that pages took, since nothing
looks by itself; what went over the network is what the gateway's log says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from kennel.api.console import text
from kennel.api.console.overview import figures
from kennel.api.console.sandbox import frame, path
from kennel.api.console.visit import Visit, get
from kennel.api.usage import Figures, Usage
from kennel.domain.egress_state import LOG
from kennel.domain.event import trusted
from kennel.domain.instance_type import INSTANCE_TYPES, InstanceType
from kennel.wire.errors import error
from kennel.wire.node import Counters
from kennel.wire.results import SandboxView

WINDOW_SECONDS = 600.0
GAP_SECONDS = 15.0
"""Looks that are further apart than this are not joined by a line."""
WIDTH, HEIGHT = 600.0, 100.0
BUCKETS = 60
_LOOKED_AT = 500
"""Records of the log that are looked at for one sandbox's traffic."""


@dataclass(frozen=True, slots=True)
class Plot:
    """One curve: its name, what it is now, what its top means, and its line as an SVG path."""

    name: str
    now: str
    top: str
    line: str
    note: str = ""


def line(points: Sequence[tuple[float, float]]) -> str:
    """An SVG path through (seconds ago, part of the top), broken where nobody looked."""
    found: list[str] = []
    last: float | None = None
    for ago, part in points:
        x = WIDTH * (1 - min(max(ago, 0.0), WINDOW_SECONDS) / WINDOW_SECONDS)
        y = HEIGHT * (1 - min(max(part, 0.0), 1.0))
        joined = last is not None and last - ago <= GAP_SECONDS
        found.append(f"{'L' if joined else 'M'}{x:.1f} {y:.1f}")
        last = ago
    return "".join(found)


def magnified(points: Sequence[tuple[float, float]]) -> tuple[list[tuple[float, float]], int]:
    """The points, and how many times larger they are drawn: a power of two up to 64 that keeps them in the field."""
    times, most = 1, max((part for _, part in points), default=0.0)
    while times < 64 and most * times * 2 <= 0.9:
        times *= 2
    return [(ago, part * times) for ago, part in points], times


def _curve(
    name: str, now: str, points: Sequence[tuple[float, float]], limit: float, word: Callable[[float], str],
    note: str = "",
) -> Plot:  # fmt: skip
    """A curve of parts of a limit; the top of its field says what it is worth and what the limit is."""
    drawn, times = magnified(points)
    top = word(limit) if times == 1 else f"{word(limit / times)}, the limit is {word(limit)}"
    return Plot(name, now if points else "…", top, line(drawn), note)


def _curves(past: Sequence[tuple[float, Figures]], kind: InstanceType) -> list[Plot]:
    last = past[-1][1] if past else None
    counters = last.counters if last is not None else Counters()
    cpu = [(ago, one.cpu) for ago, one in past if one.cpu is not None]
    killed = f"{counters.oom_kills} killed for memory" if counters.oom_kills else ""
    return [
        _curve("CPU", f"{cpu[-1][1] * 100:.0f} %" if cpu else "…", cpu, kind.milli_cpu,
               lambda n: f"{n / 1000:.2g} vCPU"),
        _curve("Memory", text.size(counters.memory), [(ago, one.memory) for ago, one in past], kind.memory, text.size,
               killed),
        _curve("Disk", text.size(counters.disk_used), [(ago, one.disk) for ago, one in past], counters.disk_size,
               text.size),
        _curve("Processes", str(counters.pids), [(ago, one.counters.pids / kind.pids) for ago, one in past], kind.pids,
               lambda n: f"{n:.0f}"),
    ]  # fmt: skip


async def _traffic(visit: Visit, where: str) -> list[Plot]:
    """Bytes in and out of the last minutes, by the gateway's records; none without a gateway."""
    streams = visit.services.streams
    if visit.services.egress is None:
        return []
    head = await streams.head(visit.project, LOG)
    events = (
        await streams.read(visit.project, LOG, after=max(0, head - _LOOKED_AT), types=["egress/recorded"],
                           limit=_LOOKED_AT)
        if head is not None else []
    )  # fmt: skip
    records = [event.payload for event in events if trusted(event) and event.payload.get("sandbox") == where]
    return [_flow("Received", records, "bytesIn"), _flow("Sent", records, "bytesOut")]


def _flow(name: str, records: Sequence[dict[str, Any]], word: str) -> Plot:
    now, step = time.time(), WINDOW_SECONDS / BUCKETS
    sums = [0] * BUCKETS
    for record in records:
        ago = now - record.get("at", 0) / 1000
        if record.get("kind") == "outcome" and 0 <= ago < WINDOW_SECONDS:
            sums[BUCKETS - 1 - int(ago / step)] += int(record.get(word, 0))
    top = max(sums)
    points = [(WINDOW_SECONDS - (n + 1) * step, count / top) for n, count in enumerate(sums)] if top else []
    return Plot(name, text.size(sum(sums)), f"{text.size(top)} in {step:.0f} s" if top else "", line(points),
                "in ten minutes, through the gateway")  # fmt: skip


async def _plots(visit: Visit, view: SandboxView) -> list[Plot]:
    usage: Usage | None = visit.request.app.state.usage
    if usage is None:
        raise error("NOT_FOUND", "There is no such page.", hint="this installation counts no usage")
    await figures(visit, [view])
    past = usage.past(view.sandbox_id, WINDOW_SECONDS)
    return _curves(past, INSTANCE_TYPES[view.instance_type]) + await _traffic(visit, view.path)


@get("/sandboxes/{name}/usage")
async def page(visit: Visit) -> Response:
    """The page."""
    shown = await frame(visit)
    return visit.page("usage.html", plots=await _plots(visit, shown["view"]), width=WIDTH, height=HEIGHT, **shown)


@get("/sandboxes/{name}/usage-plots")
async def curves(visit: Visit) -> Response:
    """The curves alone, which the page asks for again and again."""
    view = await visit.services.sandboxes.get(visit.project, path(visit))
    return visit.piece("plots.html", plots=await _plots(visit, view), width=WIDTH, height=HEIGHT, view=view)


routes: list[BaseRoute] = [page, curves]
