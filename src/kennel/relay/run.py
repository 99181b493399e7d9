"""Owns commands in progress as the host sees them: output with credit, input within credit, limits, outcome.

Made by link; ports' Run. Invariant: memory is bounded by the window or by `max_bytes` per stream, whatever the guest
sends; a limit in time is kept here too, so that a guest which a fork bomb starves of CPU holds no call up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Literal

from kennel.domain.command import DEFAULT_CWD, Chunk, Command, Outcome
from kennel.guest import framing
from kennel.relay import answers
from kennel.relay.call import Call, Line
from kennel.wire.errors import KennelError, error

LAST_WORD = 0.95
"""Seconds past a command's limit after which it is answered here, and killed by the guest when it can."""
UNSTARTED = 30.0
"""Seconds past the limit for a guest to say that it began at all."""


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
        self._limit: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._opened: asyncio.Future[None] | None = None

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
        self._end(answers.Exit.read(framing.read_control(payload)))
        return True

    def _end(self, report: answers.Exit) -> None:
        if not self.ended:
            self._future.set_result(self._outcome(report))
        self._wake()

    def _output(self, kind: int, payload: bytes) -> None:
        self._allowance.received(len(payload))
        if self._kept is not None and not self.ended:
            buffer = self._buffers[kind]
            room = self._kept - len(buffer)
            buffer += payload if len(payload) <= room else payload[: max(0, room)]
            self._cut[kind] |= len(payload) > room
            self._consumed(len(payload))
        elif self._discard or self.ended:
            self._consumed(len(payload))
        else:
            stream: Literal["stdout", "stderr"] = "stdout" if kind == framing.STDOUT else "stderr"
            self._chunks.append(Chunk(self._sequence, stream, payload))
            self._sequence += 1
            self._wake()

    def _consumed(self, count: int) -> None:
        grant = self._allowance.consumed(count)
        if grant and not self._closed:  # also when nobody waits any more: the guest's last frame comes after the rest
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
            self._tell_begun()
            self._stdin_ended()
            if self._timer is not None:
                self._timer.cancel()

    def waiting(self) -> Chunk | None:
        """The next piece of output if it is here already; as iterating, without waiting."""
        if not self._chunks:
            return None
        chunk = self._chunks.popleft()
        self._consumed(len(chunk.data))
        return chunk

    async def begun(self) -> None:
        """Comes back when the guest has started it or refused it, or the link ended."""
        if not self._acknowledged and not self.ended:
            if self._opened is None:
                self._opened = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._opened)

    async def check(self) -> None:
        """Raises what the guest refused it with, if it did."""
        if self.ended and self._future.exception() is not None:
            self._future.result()

    async def finished(self) -> Outcome:
        """How it ended, once its output was iterated; unlike `outcome` it gives up none of it."""
        result: Outcome = await asyncio.shield(self._future)
        return result

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

    def limit(self, seconds: float, started_by: float | None) -> None:
        """Answers the call here LAST_WORD after its limit in time, and refuses it when it was not started by then.

        `seconds` count from the guest's word that it began; `started_by` is None where a call may wait for its turn.
        """
        self._limit = seconds
        if started_by is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds + started_by, self._unstarted)

    def _tell_begun(self) -> None:
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    def _started(self) -> None:
        self._tell_begun()
        if self._limit is not None and not self.ended:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(self._limit + LAST_WORD, self._overdue)

    def _overdue(self) -> None:
        self.close()
        self._end(answers.overdue((self._limit or 0) + LAST_WORD))

    def _unstarted(self) -> None:
        self.close()
        self._fail(error("SANDBOX_LOST", "the guest did not start the command in time", admitted=self.admitted))

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
    """The OPEN of a command."""
    told: dict[str, Any] = {"op": "exec", "stdin": stdin, "max_bytes": command.max_bytes}
    if command.session_id is not None:
        told |= {"op": "session.exec", "session": command.session_id}
    if command.session_id is None or command.cwd is not None:
        told["cwd"] = command.cwd or DEFAULT_CWD
    if command.argv is not None:
        told["argv"] = list(command.argv)
    optional = {
        "command": command.command,
        "env": command.env or None,
        "timeout_ms": command.timeout_ms,
        "user": command.user,
    }
    return told | {name: value for name, value in optional.items() if value is not None}
