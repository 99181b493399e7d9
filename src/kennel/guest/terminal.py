"""Owns one terminal: a program on a pseudo-terminal, the last of what it wrote, who drives it and who watches.

Made by terminals. Invariants: at most one attachment drives, the others watch; the program is read only as fast as the
driver takes it, a slow watcher misses something and is told so; nobody attached, the ring turns; the end is told once
to everybody.
"""

from __future__ import annotations

import os

from . import framing, pty
from .exec import failure
from .felling import Felling
from .foreground import LAST_WORD
from .launch import Job
from .loop import READ, Loop
from .pool import Keeper, Pool
from .ring import Ring
from .source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .attachment import Attachment
    from .channel import Channel

BUFFER = 256 * 1024
_PIECE = 64 * 1024
_LINGER = 0.05
"""Seconds after the end of everything on it in which the kernel may still hand over what was written."""


class Terminal:
    """A terminal and its program, by turns the owner of a subreaper's job."""

    def __init__(
        self, loop: Loop, pool: Pool, name: str, master: int, job: Job, over: Callable[[Terminal], None]
    ) -> None:
        self._loop = loop
        self._pool = pool
        self.name = name
        self.ring = Ring(BUFFER)
        self.exit: dict[str, Any] | None = None
        self.attachments: list[Attachment] = []
        self.size = (80, 24)
        self.pid = 0
        self._cwd = job[3].decode("utf-8", "replace")
        self._command = b" ".join(job[1]).decode("utf-8", "replace")[:500]
        self._master = master
        self._input = Source(loop, os.dup(master), self._typed)
        self._writers: list[Attachment] = []
        self._watched = False
        self._status: int | None = None
        self._over = over
        self._starting: list[Channel] = []
        self._felling: Felling | None = None
        self._keeper: Keeper | None = None

    @property
    def running(self) -> bool:
        return self.exit is None

    def start(self, channel: Channel, job: Job, slave: int) -> None:
        """Has the program started on the slave; `channel` hears how that went."""
        self._starting.append(channel)
        self._keeper = self._pool.run(job, [slave, slave, slave], self)
        self._watch(True)

    def facts(self) -> dict[str, Any]:
        """What is known of it, as it travels."""
        return {
            "id": self.name,
            "command": self._command,
            "cwd": self._cwd,
            "pid": self.pid,
            "state": "running" if self.running else "exited",
            "exit": self.exit,
            "cols": self.size[0],
            "rows": self.size[1],
            "first": self.ring.first,
            "last": self.ring.last,
            "attached": len(self.attachments),
        }

    # --- its subreaper

    def started(self, pid: int) -> None:
        """The program runs."""
        self.pid = pid
        self._answer(lambda channel: channel.end(framing.RESULT, self.facts()))

    def failed(self, stage: int, number: int) -> None:
        """It could not be started."""
        refusal = failure(stage, number, self._cwd)
        self._end({"code": 127, "signal": None})
        self._answer(lambda channel: channel.refuse(refusal))

    def _answer(self, tell: Callable[[Channel], None]) -> None:
        starting, self._starting = self._starting, []
        for channel in starting:
            tell(channel)

    def exited(self, status: int) -> None:
        """The program ended, and with it the terminal: what it left in the background is hung up, as on any."""
        if self._status is None:
            self._status = status
        self.hang_up()

    def idle(self) -> None:
        """Nothing of it is left."""
        self._keeper = None
        if self._felling is not None:
            self._felling.done()
        self._loop.later(_LINGER, self._finish)

    def lost(self) -> None:
        """Its subreaper was killed, and everything below it after that."""
        if self._status is None:
            self._status = 9
        self.idle()

    def hang_up(self) -> None:
        """Ends everything on it."""
        keeper = self._keeper
        if keeper is not None and self._felling is None and keeper.owner is self:
            self._felling = Felling(self._loop, (keeper.pid,), leader=keeper.main)
            self._felling.ask()
            self._loop.later(LAST_WORD, self._finish)

    def _finish(self) -> None:
        if not self.running:
            return
        while self._take():
            pass
        status = self._status if self._status is not None else 9
        signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        self._end({"code": 128 + signal if signal else os.WEXITSTATUS(status), "signal": signal})

    def _end(self, exit_: dict[str, Any]) -> None:
        self.exit = exit_
        self._watch(False)
        self._input.close()
        self._loop.close(self._master)
        for attachment in tuple(self.attachments):
            attachment.ended()
        self._over(self)

    # --- output

    def _watch(self, wanted: bool) -> None:
        if wanted is self._watched or (wanted and not self.running):
            return
        self._watched = wanted
        if wanted:
            self._loop.watch(self._master, READ, self._ready)
        else:
            self._loop.forget(self._master)

    def _ready(self, events: int) -> None:
        if not self._take():
            # EIO: nothing has the slave open now. A program may open it again, and its end is told by the subreaper.
            self._watch(False)
            if self.running and self._status is None:
                self._loop.later(_LINGER, lambda: self._watch(True))
        self.flow()

    def _take(self) -> bool:
        try:
            data = os.read(self._master, _PIECE)
        except BlockingIOError:
            return False
        except OSError:
            return False
        if data:
            self.ring.add(framing.STDOUT, data)
            for attachment in tuple(self.attachments):
                attachment.flow()
        return bool(data)

    def flow(self) -> None:
        """Reads on while the driver takes what there is."""
        driver = self.driver
        self._watch(driver is None or driver.at >= self.ring.last)

    # --- who is attached

    @property
    def driver(self) -> Attachment | None:
        """Whoever may write."""
        return next((attachment for attachment in self.attachments if attachment.drives), None)

    def attach(self, attachment: Attachment) -> None:
        """One more; when it drives, whoever drove before watches from now on."""
        before = self.driver
        if attachment.drives and before is not None:
            before.drives = False
            before.notice({"type": "role", "role": "watch"})
        self.attachments.append(attachment)

    def leave(self, attachment: Attachment) -> None:
        """One less."""
        if attachment in self.attachments:
            self.attachments.remove(attachment)
            self.flow()

    def write(self, attachment: Attachment, payload: bytes) -> None:
        """Keys; whoever sent them hears when the terminal has them."""
        self._writers.append(attachment)
        self._input.data(payload)

    def _typed(self, count: int) -> None:
        self._writers.pop(0).taken(count)

    def resize(self, columns: int, rows: int) -> None:
        """A new size, which its programs are told by SIGWINCH; everybody attached hears of it."""
        if self.running and (columns, rows) != self.size:
            self.size = (columns, rows)
            pty.resize(self._master, columns, rows)
            for attachment in tuple(self.attachments):
                attachment.notice({"type": "resize", "cols": columns, "rows": rows})
