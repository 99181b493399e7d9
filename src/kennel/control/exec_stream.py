"""Owns commands whose output is followed while they run.

Called by the API. Invariants: the last event is `exit` or `error`, never an invented success; a command nobody reads is
stopped by its full pipe, and killed, at once or after the linger its caller asked for.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Protocol

from kennel.control.followed import Followed, Shelf
from kennel.control.live import Live
from kennel.control.recorder import Recorder
from kennel.domain import creation
from kennel.domain.characters import Characters
from kennel.domain.command import Chunk, Command, Outcome
from kennel.domain.event import fact
from kennel.domain.principal import Principal
from kennel.domain.sandbox import Projection
from kennel.ports.guest import Run
from kennel.wire.errors import KennelError

UNLIMITED = 1 << 62
"""Output of a followed command is read, not kept."""
START_SECONDS = 5.0
"""How long a start is waited for before the stream begins anyway: a session's call may wait for its turn for hours."""


class Admission(Protocol):
    """How a command gets at a running sandbox; control/sandboxes.py."""

    def guest(self, who: Principal, project: str, path: str) -> Any: ...
    async def point(self, project: str, path: str, live: Live) -> None: ...
    async def ran_out_of_memory(self, live: Live, outcome: Outcome) -> bool: ...


class ExecStream(Followed):
    """One command in progress. `text` keeps characters whole: no event ends inside one."""

    LAST = ("exit", "error")

    def __init__(self, command: Command, *, linger: float, text: bool) -> None:
        super().__init__(linger=linger)
        self.command = command
        self.run: Run | None = None
        self._characters = {"stdout": Characters(), "stderr": Characters()} if text else None

    def begun(self, run: Run) -> None:
        """It was sent to the guest."""
        self.run = run

    def at_hand(self) -> bool:
        """A piece that has arrived."""
        chunk = None if self.run is None else self.run.waiting()
        if chunk is None:
            return False
        self._output(chunk)
        return True

    async def more(self) -> bool:
        """The next piece."""
        try:
            if self.run is not None:
                self._output(await anext(aiter(self.run)))
                return True
        except StopAsyncIteration:
            pass
        except KennelError as failure:
            self.ended("error", failure.to_wire())
        return False

    def before_last(self) -> None:
        """The bytes of characters that never became whole."""
        for stream, characters in (self._characters or {}).items():
            if rest := characters.rest():
                self.tell(stream, rest)

    def _output(self, chunk: Chunk) -> None:
        data = chunk.data if self._characters is None else self._characters[chunk.stream].take(chunk.data)
        if data:
            self.tell(chunk.stream, data)


class ExecStreams(Shelf[ExecStream]):
    """Every command of this process that is followed, by id."""

    def __init__(self, sandboxes: Admission, recorder: Recorder) -> None:
        super().__init__("command", "error")
        self._sandboxes = sandboxes
        self._recorder = recorder

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
        self.make_room(linger)
        stream = ExecStream(command, linger=linger, text=text)
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work = self._carry_out(who, project, path, stream, begun, interactive)
        return await self.carry((project, path, stream.id), stream, work, begun)

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
