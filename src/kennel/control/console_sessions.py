"""Owns the console's sessions over restarts: opened, found, closed, all on the installation's `/console-sessions`.

Called by the console's door. Invariants: finding one does no I/O after the first time; a session that was closed stays
closed, whichever process did it; nothing here can be turned back into a cookie.
"""

from __future__ import annotations

from kennel.control.stream_fold import StreamFold
from kennel.domain import console_session
from kennel.domain.console_session import CLOSED, OPENED, STREAM, Book, Kept
from kennel.domain.event import fact
from kennel.domain.principal import Principal
from kennel.domain.stream_path import INSTALLATION
from kennel.ports.event_log import EventLog

WAIT = 10.0
"""Seconds to wait for the own fold after an append; the log delivers before it answers, so this never runs out."""


class ConsoleSessions:
    """`ConsoleSessions(log)`; reads its stream on first use."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._fold: StreamFold[Book] = StreamFold(log, INSTALLATION, STREAM, {}, console_session.evolve)

    async def open(self, who: Principal, sha256: str) -> None:
        """A session of this key's or link's holder, whose cookie has this hash."""
        await self._tell(who, OPENED, {"holder": who.key_id, "sha256": sha256})

    async def find(self, sha256: str) -> Kept | None:
        """The session of a cookie's hash; None for one that was never opened, or is over."""
        await self._fold.ready()
        return self._fold.state.get(sha256)

    async def close(self, who: Principal, sha256: str) -> None:
        """Ends one for good; an unknown one is ended already."""
        if await self.find(sha256) is not None:
            await self._tell(who, CLOSED, {"sha256": sha256})

    async def _tell(self, who: Principal, kind: str, payload: dict[str, object]) -> None:
        await self._fold.ready()
        [event] = await self._log.append(INSTALLATION, STREAM, [fact(who, kind, payload)])
        await self._fold.wait_until(event.offset, WAIT)
