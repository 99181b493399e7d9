"""Figures of running sandboxes."""

from __future__ import annotations

import asyncio

import pytest

from console_world import view
from kennel.api import usage
from kennel.api.usage import Usage
from kennel.wire.errors import error
from kennel.wire.node import Counters

pytestmark = pytest.mark.anyio


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_cpu_is_a_rate_of_what_the_type_allows() -> None:
    clock, seconds = Clock(), 5.0

    async def read(_: str) -> Counters:
        return Counters(cpu_seconds=seconds, memory=256 * 1024**2)

    counted = Usage(read, clock=clock)
    first = (await counted.of([view()]))["sb-main"]
    assert (first.cpu, first.memory) == (None, 0.25)
    clock.now, seconds = 4.0, 5.5
    assert (await counted.of([view()]))["sb-main"].cpu == pytest.approx(0.5)  # 1/8 CPU of a quarter
    clock.now, seconds = 6.0, 0.1
    assert (await counted.of([view()]))["sb-main"].cpu is None  # it was started anew


async def test_many_browsers_are_one_look_and_sleepers_none() -> None:
    asked: list[str] = []

    async def read(sandbox: str) -> Counters:
        asked.append(sandbox)
        return Counters()

    counted = Usage(read, clock=Clock())
    for _ in range(5):
        await counted.of([view(), view("asleep", running=False, status="stopped")])
    assert asked == ["sb-main"]


async def test_a_look_that_fails_or_hangs_costs_its_figure_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "READ_SECONDS", 0.05)

    async def read(sandbox: str) -> Counters:
        if sandbox == "sb-bad":
            raise error("NODE_UNAVAILABLE", "away")
        if sandbox == "sb-slow":
            await asyncio.Event().wait()
        return Counters()

    found = await Usage(read).of([view("bad"), view("slow"), view("good")])
    assert set(found) == {"sb-good"}


async def test_what_runs_is_listed_beside_what_it_may() -> None:
    async def read(_: str) -> Counters:
        return Counters(1.5, 1000, 7, 2, 3000, 4000)

    (one,) = await Usage(read).views([view("asleep", running=False), view()])
    assert (one.path, one.instance_type, one.cpu_seconds, one.cpu_limit) == ("/sandboxes/main", "basic", 1.5, 0.25)
    assert (one.memory, one.memory_limit, one.disk, one.disk_limit) == (1000, 1024**3, 3000, 4000)
    assert (one.processes, one.process_limit, one.oom_kills) == (7, 2048, 2)
