"""Owns commands whose output is followed while they run: numbered events, replay after a lost connection, their end.

Called by the API. Invariants: the last event is `exit` or `error`, never an invented success; nothing is taken from the
guest before somebody reads it, so a slow reader stops the program and not the host; a command nobody reads is killed,
at once or after the linger its caller asked for; at most RING bytes of what was read are kept for a return.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from kennel.control.live import Live
from kennel.control.recorder import Recorder
from kennel.domain import creation
from kennel.domain.characters import Characters
from kennel.domain.command import Chunk, Command, Outcome
from kennel.domain.event import fact
from kennel.domain.principal import Principal
from kennel.domain.sandbox import Projection
from kennel.ports.guest import Run
from kennel.wire.errors import KennelError, error

log = logging.getLogger("kennel.exec")

RING = 1024 * 1024
"""Bytes kept of what was read: more than lies between a server and a client whose connection broke."""
UNLIMITED = 1 << 62
"""Output of a followed command is read, not kept."""
MAX_LINGER = 300.0
MAX_LINGERING = 256
"""Commands in one process that may outlive their connection: RING bytes each."""
START_SECONDS = 5.0
"""How long a start is waited for before the stream begins anyway: a session's call may wait for its turn for hours."""

FIRST_READ = 5.0
"""Seconds from the start to the first read."""

Kind = Literal["start", "stdout", "stderr", "exit", "error", "truncated"]


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event: bytes for `stdout` and `stderr`, a body for the others; `sequence` rises by one from 1."""

    sequence: int
    kind: Kind
    data: bytes = b""
    body: dict[str, Any] = field(default_factory=dict)


class Admission(Protocol):
    """How a command gets at a running sandbox; control/sandboxes.py."""

    def guest(self, who: Principal, project: str, path: str) -> Any: ...
    async def point(self, project: str, path: str, live: Live) -> None: ...
    async def ran_out_of_memory(self, live: Live, outcome: Outcome) -> bool: ...


class ExecStream:
    """One command in progress. `text` keeps characters whole: no event ends inside one."""

    def __init__(self, command: Command, *, linger: float, text: bool) -> None:
        self.id = secrets.token_hex(8)
        self.command = command
        self.run: Run | None = None
        self.done = False
        self._linger = linger
        self._held: deque[StreamEvent] = deque()
        self._held_bytes = 0
        self._sequence = 0
        self._characters = {"stdout": Characters(), "stderr": Characters()} if text else None
        self._reader: object | None = None
        self._pulling: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._last: asyncio.Future[StreamEvent] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None

    # --- what happens to it

    def begun(self, run: Run) -> None:
        """It was sent to the guest."""
        self.run = run

    def ended(self, kind: Kind, body: dict[str, Any]) -> None:
        """Its last event; what was not read yet comes before it."""
        if not self._last.done():
            self._last.set_result(StreamEvent(0, kind, body=body))

    def tell(self, kind: Kind, data: bytes = b"", body: dict[str, Any] | None = None) -> None:
        """Adds an event, and forgets the oldest ones past RING."""
        self._sequence += 1
        self._held.append(StreamEvent(self._sequence, kind, data, body or {}))
        self._held_bytes += len(data)
        while self._held_bytes > (RING if self._linger else 0) and len(self._held) > 1:
            self._held_bytes -= len(self._held.popleft().data)
        self.done = self.done or kind in ("exit", "error")

    # --- reading

    async def read(self, after: int = 0) -> AsyncIterator[StreamEvent]:
        """The events after number `after`, then what comes; a second reader takes over from the first."""
        token = self._reader = object()
        if self._patience is not None:
            self._patience.cancel()
        try:
            while True:
                event = self._next(after)
                if event is None:
                    await self._pull()
                    if self._reader is not token:
                        raise error("OPERATION_INTERRUPTED", "this stream is read over another connection")
                    continue
                if event.sequence > after + 1:
                    told = {"from": after + 1, "to": event.sequence - 1}
                    yield StreamEvent(event.sequence - 1, "truncated", body=told)
                after = event.sequence
                yield event
                if event.kind in ("exit", "error"):
                    return
        finally:
            if self._reader is token:
                self._left()

    def _next(self, after: int) -> StreamEvent | None:
        if not self._held or self._held[-1].sequence <= after:
            return None
        if self._held[-1].sequence == after + 1:
            return self._held[-1]
        return next(event for event in self._held if event.sequence > after)

    async def _pull(self) -> None:
        """One more event, or several; shared by whoever waits for it."""
        run = self.run
        if run is not None and self._pulling is None and (chunk := run.waiting()) is not None:
            self._output(chunk)
            return
        if self._pulling is None:
            self._pulling = asyncio.get_running_loop().create_task(self._pull_once(), name=f"output of {self.id}")
        pulling = self._pulling
        await asyncio.wait({pulling})
        if self._pulling is pulling:
            self._pulling = None
        pulling.result()

    async def _pull_once(self) -> None:
        try:
            if self.run is not None:
                self._output(await anext(aiter(self.run)))
                return
        except StopAsyncIteration:
            pass
        except KennelError as failure:
            self.ended("error", failure.to_wire())
        last = await asyncio.shield(self._last)
        for stream, characters in (self._characters or {}).items():
            if rest := characters.rest():
                self.tell("stdout" if stream == "stdout" else "stderr", rest)
        self.tell(last.kind, body=last.body)

    def _output(self, chunk: Chunk) -> None:
        data = chunk.data if self._characters is None else self._characters[chunk.stream].take(chunk.data)
        if data:
            self.tell(chunk.stream, data)

    # --- nobody reads

    def expect_reader(self) -> None:
        """Gives up unless somebody begins to read: a caller can be gone before its first event."""
        if self._reader is None:
            self._patience = asyncio.get_running_loop().call_later(max(self._linger, FIRST_READ), self.give_up)

    def _left(self) -> None:
        self._reader = None
        if self.done or not self._linger:
            self.give_up()
        else:
            self._patience = asyncio.get_running_loop().call_later(self._linger, self.give_up)

    def give_up(self) -> None:
        """Kills what runs; harmless when it has ended."""
        self._reader = None
        if self._patience is not None:
            self._patience.cancel()
        if self.task is not None and not self.task.done():
            self.task.cancel()


class ExecStreams:
    """Every command of this process that is followed, by id."""

    def __init__(self, sandboxes: Admission, recorder: Recorder) -> None:
        self._sandboxes = sandboxes
        self._recorder = recorder
        self._streams: dict[tuple[str, str, str], ExecStream] = {}
        self._lingering = 0

    async def open(
        self,
        who: Principal,
        project: str,
        path: str,
        command: Command,
        *,
        linger: float = 0.0,
        text: bool = True,
        interactive: bool = False,
    ) -> ExecStream:
        """Starts a command to be followed with `read`; what the guest refuses it for is raised.

        It may lose its reader for `linger` seconds before it is killed. `interactive` leaves standard input open.
        """
        if linger and self._lingering >= MAX_LINGERING:
            raise error("RESOURCE_BUSY", f"{MAX_LINGERING} commands may outlive their connection", admitted="no")
        stream = ExecStream(command, linger=min(linger, MAX_LINGER), text=text)
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work = self._carry_out(who, project, path, stream, begun, interactive)
        stream.task = asyncio.get_running_loop().create_task(work, name=f"exec {stream.id}")
        key = (project, path, stream.id)
        self._streams[key] = stream
        self._lingering += bool(linger)
        stream.task.add_done_callback(lambda _: self._over(key, stream, linger))
        try:
            await asyncio.shield(begun)
        except BaseException:
            stream.give_up()
            raise
        stream.expect_reader()
        return stream

    def _over(self, key: tuple[str, str, str], stream: ExecStream, linger: float) -> None:
        """The command has ended; its last events stay for a while when somebody may come back for them."""
        task = stream.task
        if task is not None and not task.cancelled() and (fault := task.exception()) is not None:
            log.error("following %s failed", stream.id, exc_info=fault)
        stream.ended("error", error("OPERATION_INTERRUPTED", "the command was given up", admitted="yes").to_wire())

        def forget() -> None:
            self._lingering -= bool(linger)
            self._streams.pop(key, None)

        if linger:
            asyncio.get_running_loop().call_later(min(linger, MAX_LINGER), forget)
        else:
            forget()

    def find(self, project: str, path: str, exec_id: str) -> ExecStream:
        """A stream that was opened here; COMMAND_NOT_FOUND also when it ended a while ago."""
        stream = self._streams.get((project, path, exec_id))
        if stream is None:
            raise error("COMMAND_NOT_FOUND", "no such command is followed here, or it ended a while ago")
        return stream

    async def _carry_out(
        self,
        who: Principal,
        project: str,
        path: str,
        stream: ExecStream,
        begun: asyncio.Future[None],
        interactive: bool,
    ) -> None:
        command = stream.command
        finished: dict[str, Any] = {"execId": stream.id, "error": "INTERRUPTED", "timedOut": False}
        try:
            async with self._sandboxes.guest(who, project, path) as (live, state):
                await self._sandboxes.point(project, path, live)
                note = fact(who, "sandbox/exec-started", creation.started(stream.id, command))
                await self._recorder.note(project, path, note)
                try:
                    outcome = await self._follow(live, state, stream, begun, interactive)
                    finished = creation.finished(stream.id, outcome)
                except KennelError as failure:
                    finished["error"] = failure.code
                    raise
                finally:
                    await self._recorder.note(project, path, fact(who, "sandbox/exec-finished", finished))
                oom_killed = await self._sandboxes.ran_out_of_memory(live, outcome)
                stream.ended("exit", exit_body(outcome, oom_killed))
        except KennelError as failure:
            stream.ended("error", failure.to_wire())
            if not begun.done():
                begun.set_exception(failure)
                begun.exception()  # whoever asked may have left
        finally:
            if not begun.done():
                begun.set_exception(error("OPERATION_INTERRUPTED", "the command was given up", admitted="unknown"))
                begun.exception()

    async def _follow(
        self, live: Live, state: Projection, stream: ExecStream, begun: asyncio.Future[None], interactive: bool
    ) -> Outcome:
        command = stream.command
        # A session was opened with the durable map; given again it would hide what the shell exported since.
        env = command.env if command.session_id else {**state.env, **command.env}
        run = await live.guest.run(replace(command, env=env, max_bytes=UNLIMITED))
        try:
            if not interactive:
                await run.close_stdin()
            await self._started(run)
            stream.tell("start", body={"execId": stream.id})
            stream.begun(run)
            if not begun.done():
                begun.set_result(None)
            return await run.finished()
        except BaseException:
            await run.kill()
            raise

    @staticmethod
    async def _started(run: Run) -> None:
        """Waits until the guest has begun; raises what it refuses with."""
        try:
            async with asyncio.timeout(START_SECONDS):
                await run.begun()
        except TimeoutError:
            return
        await run.check()

    async def close(self) -> None:
        """Kills every command that is followed."""
        tasks = [stream.task for stream in self._streams.values() if stream.task is not None]
        for stream in list(self._streams.values()):
            stream.give_up()
        await asyncio.gather(*tasks, return_exceptions=True)


def exit_body(outcome: Outcome, oom_killed: bool) -> dict[str, Any]:
    """How a command ended, as the wire shows it."""
    return {
        "exitCode": outcome.exit_code,
        "success": outcome.exit_code == 0,
        "signal": outcome.signal,
        "timedOut": outcome.timed_out,
        "oomKilled": oom_killed,
        "durationMs": outcome.duration_ms,
        "stdoutBytes": outcome.stdout_bytes,
        "stderrBytes": outcome.stderr_bytes,
        "truncated": outcome.stdout_truncated or outcome.stderr_truncated,
    }
