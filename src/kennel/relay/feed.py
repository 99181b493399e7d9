"""Owns a call whose bytes are of two kinds, in their order: a process's log, a terminal's output and its notices.

Made by processes and terminals through their link. Invariant: as Transfer; the order of the guest is kept over both.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from kennel.guest import framing
from kennel.relay.call import Line
from kennel.relay.transfer import Transfer


class Feed(Transfer):
    """One channel of bytes with their kinds; `piece` is the next, None at the end."""

    def __init__(self, line: Line, channel: int) -> None:
        super().__init__(line, channel)
        self._kinds: deque[tuple[int, bytes]] = deque()

    def _take(self, kind: int, payload: bytes) -> bool:
        if kind not in (framing.STDOUT, framing.STDERR):
            return super()._take(kind, payload)
        self._allowance.received(len(payload))
        if self.ended:
            self._consumed(len(payload))
        else:
            self._kinds.append((kind, payload))
        self._wake()
        return False

    async def piece(self) -> tuple[int, bytes] | None:
        """The next bytes and their kind; None at the end, after which `result` is there."""
        while not self._kinds:
            if self._future.done():
                self._future.result()
                return None
            await self._change()
        kind, payload = self._kinds.popleft()
        self._consumed(len(payload))
        return kind, payload

    async def close(self) -> None:  # type: ignore[override]
        """Nobody wants it any more."""
        while self._kinds:
            self._consumed(len(self._kinds.popleft()[1]))
        await super().close()

    async def result(self) -> dict[str, Any]:
        """The guest's last word."""
        return await super().result()
