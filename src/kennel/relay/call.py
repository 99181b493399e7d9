"""Owns calls in progress on a guest's connection: what all of them share, and questions with one answer.

Made by link. Invariant: a call ends exactly once, by the guest's last frame or by `lost`; what a guest sends out of
turn is a FrameError, and what it claims about itself is checked before anybody sees it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from kennel.guest import framing
from kennel.guest.framing import FrameError
from kennel.relay import answers
from kennel.wire.errors import Admitted, KennelError


class Line(Protocol):
    """What a call needs of its link."""

    @property
    def writable(self) -> bool: ...
    def send(self, data: bytes | memoryview) -> None: ...


class Call:
    """One channel from OPEN to its last frame."""

    def __init__(self, line: Line, channel: int) -> None:
        self.channel = channel
        self._line = line
        self._acknowledged = False
        self._closed = False
        self._future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def admitted(self) -> Admitted:
        """Whether the work was started, as far as the guest has said."""
        return "yes" if self._acknowledged else "unknown"

    @property
    def ended(self) -> bool:
        """It has its answer, or was lost; its last frame may still be on its way."""
        return self._future.done()

    def frame(self, kind: int, payload: bytes) -> bool:
        """Takes a frame of this channel; true when it was the last."""
        if kind == framing.OPENED:
            if self._acknowledged:
                raise FrameError("opened twice")
            self._acknowledged = True
            self._started()
            return False
        if kind == framing.ERROR:
            self._fail(answers.refusal(framing.read_control(payload), "yes" if self._acknowledged else "no"))
            self._closed = True
        else:
            self._closed = self._take(kind, payload)
        return self._closed

    def _started(self) -> None:
        """The guest has begun."""

    def _take(self, kind: int, payload: bytes) -> bool:
        raise FrameError(f"kind {kind} on a channel of this sort")

    def lost(self, reason: KennelError) -> None:
        """The link ended with this call pending."""
        self._fail(answers.about(reason, self.admitted))

    def _fail(self, failure: KennelError) -> None:
        if not self._future.done():
            self._future.set_exception(failure)
            self._future.exception()  # whoever left the call does not want it logged either

    def close(self) -> None:
        """Nobody wants it any more: what runs is killed."""
        if not self._closed:
            self._line.send(framing.frame(framing.CLOSE, self.channel))

    def writable(self) -> None:
        """The link takes bytes again."""


class Question(Call):
    """An operation that answers with one RESULT."""

    def _take(self, kind: int, payload: bytes) -> bool:
        if kind != framing.RESULT:
            return super()._take(kind, payload)
        result = framing.read_control(payload)
        if not self._future.done():
            self._future.set_result(result)
        return True

    async def answer(self) -> dict[str, Any]:
        """What the guest says; its shape is for the caller to check."""
        try:
            return dict(await asyncio.shield(self._future))
        except asyncio.CancelledError:
            self.close()
            raise
