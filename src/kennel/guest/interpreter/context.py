"""Owns what contexts of every language have in common: one cell at a time, limits in time, interrupts, one end.

Base of PythonContext and NodeContext. Invariant: a cell's limit ends the cell and not the context, unless the program
does not let itself be interrupted within GRACE; when the program ends, the cell that ran and all that wait are told.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any

from .cell import Cell, Failure

AGAIN, GRACE = 5.0, 10.0
"""Seconds after which a program that was interrupted for its limit is so again, and is killed."""
MOST_WAITING = 64
READY_SECONDS = 60.0


class Context:
    """One program that keeps the state of a language; `facts` are what is known of it."""

    language = ""

    def __init__(self, name: str, cwd: str, env: dict[str, str]) -> None:
        self.name = name
        self.cwd = cwd
        self.env = env
        self.count = 0
        self.ended: dict[str, Any] | None = None
        self._created = self._used = time()
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._cell: Cell | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._reason = "exited"
        self._own_exit: int | None = None
        self._gone = asyncio.Event()
        self._ready = False
        self.told = False

    def facts(self) -> dict[str, Any]:
        """As it travels; times are milliseconds since 1970."""
        state = "ended" if self.ended is not None else "busy" if self._cell is not None else "idle"
        return {
            "id": self.name,
            "language": self.language,
            "cwd": self.cwd,
            "state": state if self._ready or self.ended is not None else "starting",
            "created": round(self._created * 1000),
            "used": round(self._used * 1000),
            "executionCount": self.count,
            **({"ended": self.ended} if self.ended is not None else {}),
        }

    # --- its program

    async def start(self) -> None:
        """Comes back when it takes code; Failure when it never will."""
        raise NotImplementedError

    def watch(self, process: asyncio.subprocess.Process) -> None:
        """This is the program."""
        self._process = process
        self._watcher = asyncio.create_task(self._wait(process))

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        if process is self._process:
            status = self._own_exit if self._own_exit is not None and self._reason == "exited" else status
            name = next((one.name for one in signal.Signals if one.value == -status), None)
            self.ended = {"reason": self._reason, "exitCode": status if status >= 0 else 128 - status, "signal": name}
            self.released()
            self._gone.set()

    def released(self) -> None:
        """The program is gone: lets go of what belonged to it."""

    def discard(self) -> None:
        """It never became ready: lets go of what was made for it."""

    def termination(self) -> Failure:
        """What callers of an ended context hear; from then on one of them was `told`."""
        self.told = True
        told = self.ended or {}
        why = {"deleted": "it was deleted", "unresponsive": "it did not let itself be interrupted and was killed"}
        how = told.get("signal") or f"exit code {told.get('exitCode')}"
        text = f"the context has ended: {why.get(str(told.get('reason')), f'its program ended with {how}')}"
        return Failure("CONTEXT_TERMINATED", text, contextId=self.name, **told)

    async def kill(self, reason: str) -> None:
        """Ends it and all it started; its state is lost."""
        self._reason = reason
        process = self._process
        if process is None or process.returncode is not None:
            return
        for pid in [process.pid, *_below(process.pid)]:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        await self._gone.wait()

    # --- cells

    async def run(self, cell: Cell) -> None:
        """Has a cell run after those before it; whatever happens, the cell is told its end."""
        if self._waiting >= MOST_WAITING:
            cell.fail(Failure("RESOURCE_BUSY", f"{MOST_WAITING} calls wait for this context", contextId=self.name))
            return
        self._waiting += 1
        try:
            async with self._turn:
                if self.ended is not None:
                    raise self.termination()
                if not cell.abandoned:
                    await self._take(cell)
        except Failure as failure:
            cell.fail(failure)
        finally:
            self._waiting -= 1

    async def _take(self, cell: Cell) -> None:
        self._cell, self._used = cell, time()
        cell.start(self.name, self.count + 1)
        timers: list[asyncio.TimerHandle] = []
        if cell.timeout is not None:
            timers.append(asyncio.get_running_loop().call_later(cell.timeout, self._expire, cell, timers))
        work, gone = asyncio.ensure_future(self.execute(cell)), asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise self.termination()
            work.result()
            cell.end(self.count)
        finally:
            work.cancel()
            gone.cancel()
            for timer in timers:
                timer.cancel()
            self._cell, self._used = None, time()

    def _expire(self, cell: Cell, timers: list[asyncio.TimerHandle]) -> None:
        """Its time is up: an interrupt, again after AGAIN, and the end of the whole context after GRACE.

        Not sooner: a second interrupt would cut off the traceback that answers the first, which takes a second or two
        when it is a kernel's first and the machine is busy.
        """
        cell.timed_out = True
        loop = asyncio.get_running_loop()
        self.strike()
        timers.append(loop.call_later(AGAIN, self.strike))
        timers.append(loop.call_later(GRACE, lambda: asyncio.ensure_future(self.kill("unresponsive"))))

    async def execute(self, cell: Cell) -> None:
        """Runs it to its end."""
        raise NotImplementedError

    def strike(self) -> None:
        """Interrupts what runs now."""
        raise NotImplementedError

    def interrupt(self, cell: Cell | None = None) -> bool:
        """Interrupts the cell that runs (only `cell`, when given); whether one did."""
        if self._cell is None or cell not in (None, self._cell):
            return False
        self._cell.interrupted = True
        self.strike()
        return True


def _below(pid: int) -> list[int]:
    """Every process below one, itself left out; those that hide from it by becoming orphans end with the sandbox."""
    found: list[int] = []
    roots = [pid]
    while roots and len(found) < 10_000:
        parent = roots.pop()
        for listing in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(OSError):
                roots += (children := [int(word) for word in listing.read_text().split()])
                found += children
    return found
