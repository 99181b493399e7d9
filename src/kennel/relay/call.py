"""Owns calls in progress on a guest's connection: a command with its output, a question with its answer.

Made by link. Invariant: a call ends exactly once, by the guest's last frame or by `lost`; what a guest sends beyond its
credit or out of turn is a FrameError, and what it claims about itself is checked before anybody sees it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Literal, Protocol

from kennel.domain.command import DEFAULT_CWD, Chunk, Command, Outcome
from kennel.guest import framing
from kennel.guest.framing import FrameError
from kennel.relay import answers
from kennel.wire.errors import Admitted, KennelError, error

OVERDUE = 30.0
"""Seconds past a command's own limit after which a guest that has not answered is no longer waited for."""


class Line(Protocol):
    """What a call needs of its link."""

    @property
    def writable(self) -> bool: ...
    def send(self, data: bytes) -> None: ...


class Call:
    """One channel from OPEN to its last frame."""

    def __init__(self, line: Line, channel: int) -> None:
        self.channel = channel
        self._line = line
        self._acknowledged = False
        self._future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def admitted(self) -> Admitted:
        """Whether the work was started, as far as the guest has said."""
        return "yes" if self._acknowledged else "unknown"

    @property
    def ended(self) -> bool:
        """Its last frame has come, or it was lost."""
        return self._future.done()

    def frame(self, kind: int, payload: bytes) -> bool:
        """Takes a frame of this channel; true when it was the last."""
        if kind == framing.OPENED:
            if self._acknowledged:
                raise FrameError("opened twice")
            self._acknowledged = True
            return False
        if kind == framing.ERROR:
            self._fail(answers.refusal(framing.read_control(payload), "yes" if self._acknowledged else "no"))
            return True
        return self._take(kind, payload)

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
        if not self.ended:
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


class RunCall(Call):
    """A command in progress: ports' Run. `kept` bytes per stream are collected, or all is left to iteration (None).

    Iterate once, then await `outcome`, which gives up output that was not iterated. Leaving early does not kill it.
    """

    def __init__(self, line: Line, channel: int, kept: int | None) -> None:
        super().__init__(line, channel)
        self._kept = kept
        self._buffers = {framing.STDOUT: bytearray(), framing.STDERR: bytearray()}
        self._cut = {framing.STDOUT: False, framing.STDERR: False}
        self._allowance = framing.Allowance()
        self._chunks: deque[Chunk] = deque()
        self._sequence = 0
        self._discard = False
        self._more: asyncio.Future[None] | None = None
        self._window = framing.Window()
        self._stdin: memoryview | None = None
        self._stdin_open = True
        self._eof_wanted = False
        self._written: asyncio.Future[None] | None = None
        self._overdue: asyncio.TimerHandle | None = None

    # --- frames of the guest

    def _take(self, kind: int, payload: bytes) -> bool:
        if kind in (framing.STDOUT, framing.STDERR):
            self._output(kind, payload)
            return False
        if kind == framing.CREDIT:
            self._window.grant(framing.read_credit(payload))
            self._pump()
            return False
        if kind != framing.EXIT:
            return super()._take(kind, payload)
        report = answers.Exit.read(framing.read_control(payload))
        if not self._future.done():
            self._future.set_result(self._outcome(report))
        self._wake()
        return True

    def _output(self, kind: int, payload: bytes) -> None:
        self._allowance.received(len(payload))
        if self._kept is not None:
            buffer = self._buffers[kind]
            room = self._kept - len(buffer)
            buffer += payload if len(payload) <= room else payload[: max(0, room)]
            self._cut[kind] |= len(payload) > room
            self._consumed(len(payload))
        elif self._discard or self._future.done():
            self._consumed(len(payload))
        else:
            stream: Literal["stdout", "stderr"] = "stdout" if kind == framing.STDOUT else "stderr"
            self._chunks.append(Chunk(self._sequence, stream, payload))
            self._sequence += 1
            self._wake()

    def _consumed(self, count: int) -> None:
        grant = self._allowance.consumed(count)
        if grant and not self.ended:
            self._line.send(framing.credit(self.channel, grant))

    def _outcome(self, report: answers.Exit) -> Outcome:
        stdout, stderr = self._buffers[framing.STDOUT], self._buffers[framing.STDERR]
        return Outcome(
            stdout=bytes(stdout),
            stderr=bytes(stderr),
            exit_code=report.code,
            signal=report.signal,
            timed_out=report.timed_out,
            stdout_bytes=max(report.stdout_bytes, len(stdout)),
            stderr_bytes=max(report.stderr_bytes, len(stderr)),
            stdout_truncated=report.stdout_truncated or self._cut[framing.STDOUT],
            stderr_truncated=report.stderr_truncated or self._cut[framing.STDERR],
            duration_ms=report.duration_ms,
            cwd=report.cwd,
        )

    def _fail(self, failure: KennelError) -> None:
        super()._fail(failure)
        self._wake()

    # --- output

    def __aiter__(self) -> RunCall:
        return self

    async def __anext__(self) -> Chunk:
        while not self._chunks:
            if self._future.done():
                self._future.result()
                raise StopAsyncIteration
            self._more = asyncio.get_running_loop().create_future()
            await self._more
        chunk = self._chunks.popleft()
        self._consumed(len(chunk.data))
        return chunk

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)
        if self._future.done():
            self._stdin_ended()
            if self._overdue is not None:
                self._overdue.cancel()

    async def outcome(self) -> Outcome:
        """How it ended; its output is empty unless it was collected."""
        self._discard = True
        while self._chunks:
            self._consumed(len(self._chunks.popleft().data))
        result: Outcome = await asyncio.shield(self._future)
        return result

    async def collected(self) -> Outcome:
        """How it ended, with the collected output; leaving this kills it."""
        try:
            result: Outcome = await asyncio.shield(self._future)
        except asyncio.CancelledError:
            self.close()
            raise
        return result

    def expect_within(self, seconds: float) -> None:
        """The guest was told to end it by then; one that does not, and does not say so, is not waited for."""

        def overdue() -> None:
            self.close()
            self._fail(error("SANDBOX_LOST", "the guest did not end the command in time", admitted=self.admitted))

        self._overdue = asyncio.get_running_loop().call_later(seconds + OVERDUE, overdue)

    # --- input and signals

    def feed(self, data: bytes, last: bool) -> None:
        """Bytes for standard input, sent as the guest takes them; only while nothing is pending."""
        self._stdin = memoryview(data)
        self._eof_wanted = last
        self._pump()

    async def write(self, data: bytes) -> None:
        """Sends bytes to standard input; returns when the guest has taken them, or the program has ended."""
        while self._written is not None:
            await asyncio.shield(self._written)
        if not data or self.ended or not self._stdin_open:
            return
        self.feed(data, last=False)
        if self._stdin is not None:
            self._written = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._written)

    async def close_stdin(self) -> None:
        """The program sees the end of its input after what was written."""
        self._eof_wanted = True
        self._pump()

    async def signal(self, number: int) -> None:
        """Signals every process of the command."""
        if not self.ended:
            self._line.send(framing.frame(framing.SIGNAL, self.channel, bytes([number])))

    async def kill(self) -> None:
        """Kills the tree."""
        self.close()

    def writable(self) -> None:
        """The link takes bytes again."""
        self._pump()

    def _pump(self) -> None:
        if self.ended or not self._stdin_open:
            return
        while self._stdin is not None:
            count = min(len(self._stdin), self._window.room, framing.MAX_PAYLOAD)
            if (not count and self._stdin) or not self._line.writable:
                return
            if count:
                self._window.take(count)
                self._line.send(framing.frame(framing.DATA, self.channel, bytes(self._stdin[:count])))
            self._stdin = self._stdin[count:] if count < len(self._stdin) else None
        self._release()
        if self._eof_wanted:
            self._stdin_open = False
            self._line.send(framing.frame(framing.EOF, self.channel))

    def _release(self) -> None:
        written, self._written = self._written, None
        if written is not None and not written.done():
            written.set_result(None)

    def _stdin_ended(self) -> None:
        self._stdin = None
        self._stdin_open = False
        self._release()


def words(command: Command, stdin: bool) -> dict[str, Any]:
    """The OPEN of a command. In a session the default directory means the session's own."""
    told: dict[str, Any] = {"op": "exec", "stdin": stdin, "max_bytes": command.max_bytes}
    if command.session_id is not None:
        told |= {"op": "session.exec", "session": command.session_id}
    if command.session_id is None or command.cwd != DEFAULT_CWD:
        told["cwd"] = command.cwd
    if command.argv is not None:
        told["argv"] = list(command.argv)
    optional = {
        "command": command.command,
        "env": command.env or None,
        "timeout_ms": command.timeout_ms,
        "user": command.user,
    }
    return told | {name: value for name, value in optional.items() if value is not None}
