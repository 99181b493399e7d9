"""Owns the background processes of a sandbox, by id: what may be asked of them, and how many are remembered.

Begun by the operations `process.*`. Invariant: a process ends by itself, by a kill or with the sandbox, never with the
connection that started it; MOST_FINISHED records and BUDGET bytes of logs are kept.
"""

from __future__ import annotations

import os

from . import framing, launch
from .accounts import Accounts
from .exec import Spill
from .following import Following
from .foreground import Limits
from .loop import Loop
from .pool import Pool
from .process import Process
from .program import Program
from .refusal import Refusal
from .waiting import PortWait, Waiting, ready_when

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .channel import Channel, Operation

MOST_RUNNING = 512
MOST_FINISHED = 64
BUDGET = 24 * 1024 * 1024
"""Memory of all logs together."""
MOST_ENDS = 128
"""Ends that are remembered for whoever keeps the books, each of some hundred bytes."""
GRACE_SECONDS = 5
_MOST_ID = 128
_MOST_GRACE = 300_000


class Ending:
    """A kill, answered when all it was for are over."""

    def __init__(self, channel: Channel, count: int) -> None:
        self._channel = channel
        self._left = count
        self._count = count
        self._last: Process | None = None

    def wrote(self, kind: int, data: bytes) -> None:
        """Of no interest."""

    def ended(self) -> None:
        """One more is over."""
        self._left -= 1
        self.tell()

    def tell(self, process: Process | None = None) -> None:
        """Answers when nothing is left to wait for; with the record, when it was for one."""
        self._last = process or self._last
        if self._left <= 0:
            facts = self._last.facts() if self._last is not None else {}
            self._channel.end(framing.RESULT, {"killed": self._count, **facts})


class Input:
    """Bytes for a process's standard input, over one call."""

    def __init__(self, channel: Channel, process: Process, ending: bool) -> None:
        self._channel = channel
        self._process = process
        self._ending = ending
        self._count = 0
        self._left = 0
        self._last = False

    def data(self, payload: bytes) -> None:
        """More of them."""
        if not self._process.running:
            self._channel.consumed(len(payload))
            self._refuse()
            return
        self._count += len(payload)
        self._left += 1
        self._process.write(self, payload)

    def _refuse(self) -> None:
        self._channel.refuse(Refusal("PROCESS_EXITED", "the process has ended", processId=self._process.name))

    def eof(self) -> None:
        """No more of them over this call."""
        self._last = True
        self._settle()

    def taken(self, count: int) -> None:
        """A piece was read."""
        self._channel.consumed(count)
        self._left -= 1
        self._settle()

    def flow(self) -> None:
        """Has nothing to send."""

    def _settle(self) -> None:
        if not self._last or self._left:
            return
        if self._ending and self._process.program is not None:
            self._process.program.eof()
        self._channel.end(framing.RESULT, {"count": self._count})

    def signal(self, number: int) -> None:
        """Not here."""

    def close(self) -> None:
        """The caller left; what it sent still goes in."""
        self._process.forget(self)
        self._channel.refuse(Refusal("OPERATION_INTERRUPTED", "the caller left"))


class ProcessOperations:
    """The verbs, by name."""

    def __init__(self, loop: Loop, pool: Pool, accounts: Accounts, runtime: str) -> None:
        self._loop = loop
        self._pool = pool
        self._accounts = accounts
        self._runtime = runtime
        self._processes: dict[str, Process] = {}
        self._vigils: list[Channel] = []
        self._ends: list[dict[str, Any]] = []
        self._count = 0
        self._reports: list[tuple[Channel, int]] = []

    def begin(self, verb: str, channel: Channel, args: dict[str, Any]) -> Operation | None:
        """Begins one operation."""
        asked = args.get("runtime")
        if asked is not None and asked != self._runtime:
            raise Refusal("STALE_PROCESS_HANDLE", "that process ran before the sandbox's last start")
        begun: Operation | None = getattr(self, f"_{verb}")(channel, args)
        return begun

    def _tell(self, channel: Channel, value: dict[str, Any]) -> None:
        channel.end(framing.RESULT, {"runtime": self._runtime, **value})

    # --- verbs

    def _start(self, channel: Channel, args: dict[str, Any]) -> None:
        name = launch.text_of(args, "process") or f"p-{os.urandom(6).hex()}"
        if len(name) > _MOST_ID:
            raise Refusal("INVALID_COMMAND", f"a process's id has at most {_MOST_ID} characters")
        known = self._processes.get(name)
        if known is not None and known.running:
            raise Refusal("PROCESS_ALREADY_EXISTS", f"there is a process {name!r}", processId=name)
        if sum(process.running for process in self._processes.values()) >= MOST_RUNNING:
            raise Refusal("RESOURCE_BUSY", f"{MOST_RUNNING} processes run in the background")
        limits, spill = Limits(args), Spill()
        process = Process(name, args, self._changed)
        try:
            job = launch.job_for(args, self._accounts, spill)
            process.program = Program(self._loop, self._pool, process, job, limits, spill.folder)  # type: ignore[arg-type]
        except BaseException:
            spill.clear()
            raise
        self._processes.pop(name, None)
        self._processes[name] = process
        process.answer_to(channel)

    def _list(self, channel: Channel, args: dict[str, Any]) -> None:
        self._tell(channel, {"processes": [process.facts() for process in self._processes.values()]})

    def _get(self, channel: Channel, args: dict[str, Any]) -> None:
        self._tell(channel, self._find(args).facts())

    def _kill(self, channel: Channel, args: dict[str, Any]) -> None:
        """One, or all without an id; answered when they are gone. One that is over stays as it is."""
        asked = launch.int_of(args, "grace_ms", 0, _MOST_GRACE)
        grace = GRACE_SECONDS if asked is None else asked / 1000
        one = self._find(args) if args.get("process") is not None else None
        found = [one] if one is not None else list(self._processes.values())
        alive = [process for process in found if process.running]
        ending = Ending(channel, len(alive))
        for process in alive:
            process.listen(ending, always=True)
            if process.program is not None:
                process.program.stop(grace)
        ending.tell(one)

    def _signal(self, channel: Channel, args: dict[str, Any]) -> None:
        process, number = self._find(args), launch.int_of(args, "signal", 1, 64)
        if number is None:
            raise Refusal("INVALID_COMMAND", "signal is needed")
        if process.running and process.program is not None:
            process.program.signal(number)
        self._tell(channel, process.facts())

    def _logs(self, channel: Channel, args: dict[str, Any]) -> Following:
        return Following(channel, self._find(args), args)

    def _stdin(self, channel: Channel, args: dict[str, Any]) -> Input:
        process = self._find(args)
        if not process.running:
            raise Refusal("PROCESS_EXITED", "the process has ended", processId=process.name)
        if not process.takes_input:
            raise Refusal("VALIDATION_FAILED", "the process was started without an input", processId=process.name)
        if process.busy:
            raise Refusal("RESOURCE_BUSY", "the process does not read its input", processId=process.name)
        return Input(channel, process, args.get("eof") is True)

    def _wait(self, channel: Channel, args: dict[str, Any]) -> Waiting:
        return ready_when(self._loop, channel, self._find(args), args)

    def _port(self, channel: Channel, args: dict[str, Any]) -> PortWait:
        return PortWait(self._loop, channel, None, args)

    def _awake(self, channel: Channel, args: dict[str, Any]) -> None:
        """Answered when no process asks any more for the sandbox to stay awake."""
        self._vigils.append(channel)
        self._settle_vigils()

    def _ended(self, channel: Channel, args: dict[str, Any]) -> None:
        """Answered with the ends after number `since`, as soon as there is one."""
        self._reports.append((channel, launch.int_of(args, "since", 0, 1 << 53) or 0))
        self._report()

    def _report(self) -> None:
        waiting, self._reports = self._reports, []
        for channel, since in waiting:
            if self._count > since:
                self._tell(channel, {"ends": self._ends[-min(self._count - since, MOST_ENDS) :], "next": self._count})
            elif channel.open:
                self._reports.append((channel, since))

    # --- records

    def _find(self, args: dict[str, Any]) -> Process:
        name = launch.text_of(args, "process") or ""
        process = self._processes.get(name)
        if process is None:
            raise Refusal("PROCESS_NOT_FOUND", f"there is no process {name[:_MOST_ID]!r}", processId=name[:_MOST_ID])
        return process

    def _changed(self, process: Process) -> None:
        """One is over: forgets the oldest of too many, and of too long logs."""
        if self._processes.get(process.name) is process:
            del self._processes[process.name]  # to the end: the order is that of ends
            self._processes[process.name] = process
        over = [process for process in self._processes.values() if not process.running]
        for old in over[: max(0, len(over) - MOST_FINISHED)]:
            del self._processes[old.name]
        cost = sum(process.ring.cost for process in self._processes.values())
        for old in over:
            if cost <= BUDGET:
                break
            cost -= old.ring.cost
            old.ring.shrink(0)
        self._count += 1
        self._ends = [*self._ends[1 - MOST_ENDS :], process.ending()]
        self._report()
        self._settle_vigils()

    def _settle_vigils(self) -> None:
        if any(process.keep_awake and process.running for process in self._processes.values()):
            return
        vigils, self._vigils = self._vigils, []
        for channel in vigils:
            self._tell(channel, {})
