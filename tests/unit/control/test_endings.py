"""Ends of processes over a scripted guest: told once, also early ones and those of before; nothing else is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kennel.control.endings import MOST_EARLY, Endings
from kennel.domain.process import ProcessEnd, ProcessExit
from kennel.wire.errors import error

pytestmark = pytest.mark.anyio


class World:
    """A guest whose processes end when it is told."""

    def __init__(self) -> None:
        self.noted: list[Any] = []
        self.queue: asyncio.Queue[list[ProcessEnd] | None] = asyncio.Queue()
        self.known: list[Any] = []
        self.asked: list[int] = []
        self.endings = Endings(self.note)

    def live(self) -> Any:
        class Live:
            sandbox = "s"
            guest = SimpleNamespace(processes=self, runtime="00ff")

        return Live()

    async def note(self, project: str, path: str, event: Any) -> None:
        self.noted.append(event)

    async def list(self) -> list[Any]:
        return self.known

    async def ended(self, since: int) -> tuple[list[ProcessEnd], int]:
        self.asked.append(since)
        ends = await self.queue.get()
        if ends is None:
            raise error("SANDBOX_LOST", "gone")
        return ends, since + len(ends)

    async def told(self, count: int) -> list[dict[str, Any]]:
        while len(self.noted) < count:
            await asyncio.sleep(0.01)
        return [event.payload for event in self.noted]


def end(name: str, began: int = 1, code: int = 0, signal: str | None = None) -> ProcessEnd:
    return ProcessEnd(name, began, began + 5, ProcessExit(code, signal))


async def test_each_end_of_what_was_started_is_told_once() -> None:
    world, live = World(), World().live()
    live.guest.processes = world
    await world.endings.expect("p", "/sandboxes/x", live, "a", 1)
    world.queue.put_nowait([end("a", code=3), end("stranger"), end("a", began=2, code=9)])
    world.queue.put_nowait([end("a", code=3), end("b", signal="SIGKILL", code=137)])
    assert await world.told(1) == [{"processId": "a", "durationMs": 5, "exitCode": 3, "timedOut": False}]
    while len(world.asked) < 3:
        await asyncio.sleep(0.01)
    await world.endings.expect("p", "/sandboxes/x", live, "b", 1)  # it ended before its start was answered
    assert (await world.told(2))[1]["signal"] == "SIGKILL"
    assert world.asked == [0, 3, 5]
    world.queue.put_nowait(None)


async def test_what_ended_while_nobody_listened_is_told_under_the_same_key() -> None:
    keys = []
    for _ in range(2):
        world = World()
        live = world.live()
        world.known = [SimpleNamespace(id="a", began=1)]
        world.endings.adopted("p", "/sandboxes/x", live)
        world.queue.put_nowait([end("a"), *(end(f"s{n}") for n in range(2 * MOST_EARLY))])
        await world.told(1)
        keys.append(world.noted[0].idempotency_key)
        world.queue.put_nowait(None)
    assert keys[0] == keys[1]
