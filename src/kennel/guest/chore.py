"""Owns work in steps: a generator that the loop advances a few milliseconds at a time, its bytes sent within credit.

Made by the file operations. Invariant: no step of a chore keeps the loop longer than SLICE and one step; when its
channel ends, for whatever reason, the generator is closed and with it every descriptor it holds.
"""

from __future__ import annotations

from time import monotonic

from . import framing
from .loop import Loop
from .paths import Rights, refusal
from .refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from .channel import Channel

    Steps = Generator[bytes | None, None, dict[str, Any] | None]
    """Yields bytes for the peer, or None to let others have a turn; returns the RESULT."""

SLICE = 0.002
"""Seconds of work between two looks at the other channels: an exec beside a copy waits that long."""


class Chore:
    """One operation in steps, as its channel sees it."""

    def __init__(self, loop: Loop, channel: Channel, rights: Rights, path: bytes, steps: Steps) -> None:
        self._loop = loop
        self._channel = channel
        self._rights = rights
        self._path = path
        self._steps = steps
        self._pending: bytes | None = None
        self._planned = False
        self._over = False
        channel.opened()
        self._plan()

    def _plan(self) -> None:
        if not self._planned and not self._over:
            self._planned = True
            self._loop.later(0, self._work)

    def _work(self) -> None:
        self._planned = False
        if self._over:
            return
        until = monotonic() + SLICE
        try:
            with self._rights:
                while self._send() and monotonic() < until:
                    self._pending = next(self._steps)
        except StopIteration as end:
            self._over = True
            self._channel.end(framing.RESULT, end.value or {})
        except OSError as problem:
            self._refuse(refusal(problem, self._path))
        except Refusal as refused:
            self._refuse(refused)
        else:
            if self._pending is None or self._fits(self._pending):
                self._plan()

    def _fits(self, piece: bytes) -> bool:
        return len(piece) <= self._channel.room

    def _send(self) -> bool:
        """Sends what is pending; false when there is no room for it."""
        piece = self._pending
        if piece is None:
            return True
        if not self._fits(piece):
            return False
        if piece:
            self._channel.output(framing.STDOUT, piece)
        self._pending = None
        return True

    def _refuse(self, refused: Refusal) -> None:
        self._over = True
        self._steps.close()
        self._channel.refuse(refused)

    # --- what the peer says

    def flow(self) -> None:
        """There may be room for output."""
        self._plan()

    def data(self, payload: bytes) -> None:
        """Takes no bytes."""
        self._channel.consumed(len(payload))

    def eof(self) -> None:
        """Takes no bytes."""

    def signal(self, number: int) -> None:
        """Runs nothing that could be signalled."""

    def close(self) -> None:
        """Nobody wants it any more."""
        if not self._over:
            self._refuse(Refusal("OPERATION_INTERRUPTED", "the caller left"))
