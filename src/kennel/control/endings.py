"""Owns how the log learns that a background process ended: one question to each guest whose processes are expected to.

Called by processes and, for containers that ran before this process did, by fleet. Invariants: only the end of what
was started from here, or was there when its sandbox was adopted, is told, and once: its key is what it says, so what
was told before a restart is not told again; a guest that answers without pause is asked again with one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

from kennel.control.live import Live
from kennel.domain.event import NewEvent, fact
from kennel.domain.principal import SYSTEM
from kennel.domain.process import ProcessEnd
from kennel.wire.errors import KennelError

log = logging.getLogger("kennel.endings")

PAUSE = 0.05
"""Seconds between two questions to one guest."""
MOST_EARLY = 64
"""Ends that wait for the answer to their own start."""

Note = Callable[[str, str, NewEvent], Awaitable[None]]


class Watch:
    """One guest's."""

    def __init__(self, live: Live, tell: Callable[[ProcessEnd], Awaitable[None]], *, adopted: bool) -> None:
        self._processes = live.guest.processes
        self._tell = tell
        self._adopted = adopted
        self._expected: set[tuple[str, int]] = set()
        self._early: dict[tuple[str, int], ProcessEnd] = {}
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"ends in {live.sandbox}")

    async def expect(self, name: str, began: int) -> None:
        """A process was started; its end may have been heard already."""
        end = self._early.pop((name, began), None)
        if end is None:
            self._expected.add((name, began))
        else:
            await self._tell(end)

    async def _run(self) -> None:
        since = 0
        try:
            if self._adopted:
                self._expected |= {(known.id, known.began) for known in await self._processes.list()}
            while True:
                ends, since = await self._processes.ended(since)
                for end in ends:
                    await self._take(end)
                await asyncio.sleep(PAUSE)
        except KennelError as failure:
            log.info("%s: %s", self._task.get_name(), failure)

    async def _take(self, end: ProcessEnd) -> None:
        name = (end.id, end.began)
        if name in self._expected:
            self._expected.discard(name)
            await self._tell(end)
            return
        self._early[name] = end
        while len(self._early) > MOST_EARLY:
            del self._early[next(iter(self._early))]


class Endings:
    """Those of all sandboxes."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._watches: WeakKeyDictionary[Live, Watch] = WeakKeyDictionary()

    async def expect(self, project: str, path: str, live: Live, name: str, began: int) -> None:
        """A process was started, and that is noted."""
        await self._watch(project, path, live).expect(name, began)

    def adopted(self, project: str, path: str, live: Live) -> None:
        """A container that ran before this process did: what ended meanwhile is told, too."""
        self._watch(project, path, live, adopted=True)

    def _watch(self, project: str, path: str, live: Live, *, adopted: bool = False) -> Watch:
        found = self._watches.get(live)
        if found is None:
            runtime = live.guest.runtime

            async def tell(end: ProcessEnd) -> None:
                await self._note(project, path, _event(end, runtime))

            found = self._watches[live] = Watch(live, tell, adopted=adopted)
        return found


def _event(end: ProcessEnd, runtime: str) -> NewEvent:
    exit_ = end.exit
    told: dict[str, Any] = {"processId": end.id, "durationMs": max(0, end.over - end.began)}
    if exit_ is not None:
        told |= {"exitCode": exit_.code, "timedOut": exit_.timed_out}
        told |= {"signal": exit_.signal} if exit_.signal else {}
    words = f"{runtime} {end.began} {told}"
    return fact(SYSTEM, "sandbox/process-ended", told, key=f"ended:{hashlib.sha256(words.encode()).hexdigest()[:40]}")
