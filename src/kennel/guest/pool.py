"""Owns the subreapers, seen from PID 1: forks them, hands them jobs, keeps a few idle, notices their loss.

Called by exec and session. Invariant: a keeper serves one owner at a time and is used again only after its IDLE; an
owner always hears the end, by `idle` or by `lost`.
"""

from __future__ import annotations

import marshal
import os

from . import native, subreaper
from .loop import READ, Loop, Timer
from .refusal import Refusal, spawn_refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from .launch import Job

    class Owner(Protocol):
        """Has a job carried out, and hears `failed`; or `started`, `exited` (a wait status), `idle`; or `lost`."""

        def started(self, pid: int) -> None: ...
        def failed(self, stage: int, number: int) -> None: ...
        def exited(self, status: int) -> None: ...
        def idle(self) -> None: ...
        def lost(self) -> None: ...


_KEEP_BUSY, _KEEP_CALM = 8, 1
_AHEAD = 0.05
"""Seconds after which a job that took the last idle subreaper has another made: none can be once its command has used
up the limit of processes, and the next call is the one that ends it."""
_CALM = 5.0
"""Seconds without a job after which all but one idle subreaper go: each costs about half a megabyte."""


class Keeper:
    """One subreaper and the link to it."""

    __slots__ = ("_pool", "_sock", "main", "owner", "pid")

    def __init__(self, pool: Pool, pid: int, sock: native.Socket) -> None:
        self._pool = pool
        self._sock = sock
        self.pid = pid
        self.owner: Owner | None = None
        self.main = 0

    @property
    def fd(self) -> int:
        """The descriptor of the link."""
        return self._sock.fileno()

    def run(self, job: Job, fds: list[int], owner: Owner) -> None:
        """Has the job carried out with `fds` as its standard input, output and error."""
        message = marshal.dumps(job)
        spill = -1
        try:
            if len(message) > subreaper.INLINE:
                spill = os.memfd_create("job")
                with os.fdopen(os.dup(spill), "wb") as file:
                    file.write(message)
                os.lseek(spill, 0, os.SEEK_SET)
                message, fds = b"spilled", [*fds, spill]
            native.send_descriptors(self._sock, message, fds)
        except OSError as problem:
            raise spawn_refusal(problem) from None
        finally:
            if spill >= 0:
                os.close(spill)
        self.owner, self.main = owner, 0

    def heard(self, events: int) -> None:
        """The link is readable: reports, or its end."""
        while self.fd >= 0:
            try:
                message = self._sock.recv(256, native.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._pool.lost(self)
                return
            self._hear(*marshal.loads(message))

    def _hear(self, word: int, *values: int) -> None:
        owner = self.owner
        if word == subreaper.IDLE:
            self._pool.idle(self)
            if owner is not None:
                owner.idle()
        elif owner is None:
            return
        elif word == subreaper.STARTED:
            self.main = values[0]
            owner.started(values[0])
        elif word == subreaper.FAILED:
            owner.failed(values[0], values[1])
        elif word == subreaper.EXITED:
            self.main = 0
            owner.exited(values[1])
            if len(values) > 2:
                self._hear(subreaper.IDLE)

    def drop(self) -> None:
        """Closes the link; the subreaper ends when it has nothing to do."""
        if self.fd >= 0:
            self._pool.loop.close(self._sock.detach())


class Pool:
    """Every subreaper there is."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.keepers: dict[int, Keeper] = {}
        self._idle: list[Keeper] = []
        self._calm: Timer | None = None
        self._ahead: Timer | None = None

    def prepare(self) -> None:
        """Makes one ahead of the next job, when none is idle."""
        self._ahead = None
        if not self._idle:
            self._idle.append(self._fork())

    def _prepare_soon(self) -> None:
        if self._idle or self._ahead is not None:
            return
        self._ahead = self.loop.later(_AHEAD, self._prepare_if_room)

    def _prepare_if_room(self) -> None:
        try:
            self.prepare()
        except Refusal:
            return  # the next job tries, and says so if it cannot

    def run(self, job: Job, fds: list[int], owner: Owner) -> Keeper:
        """Gives the job to an idle subreaper or a new one. Refusal when no process can be made."""
        while self._idle:
            keeper = self._idle.pop()
            try:
                keeper.run(job, fds, owner)
            except Refusal:
                self.discard(keeper)  # stopped or killed behind our back; another one will do
                continue
            self._prepare_soon()
            return keeper
        keeper = self._fork()
        keeper.run(job, fds, owner)
        self._prepare_soon()
        return keeper

    def _fork(self) -> Keeper:
        try:
            near, far = native.socketpair()
        except OSError as problem:
            raise spawn_refusal(problem) from None
        try:
            pid = os.fork()
        except OSError as problem:
            near.close()
            far.close()
            raise spawn_refusal(problem) from None
        if pid == 0:
            subreaper.serve(far, far.fileno())
        far.close()
        keeper = self.keepers[pid] = Keeper(self, pid, near)
        self.loop.watch(keeper.fd, READ, keeper.heard)
        return keeper

    def idle(self, keeper: Keeper) -> None:
        """It has no job and no children."""
        keeper.owner, keeper.main = None, 0
        if len(self._idle) < _KEEP_BUSY:
            self._idle.append(keeper)
        else:
            keeper.drop()
        if self._calm is None:
            self._calm = self.loop.later(_CALM, self._thin)

    def _thin(self) -> None:
        self._calm = None
        while len(self._idle) > _KEEP_CALM:
            self._idle.pop(0).drop()

    def discard(self, keeper: Keeper) -> None:
        """Ends a subreaper that is of no use; its children, if any, fall to PID 1 as strays."""
        try:
            os.kill(keeper.pid, native.SIGKILL)
        except OSError:
            return  # dead already, reaped soon

    def lost(self, keeper: Keeper) -> None:
        """Its link ended: it was killed, or dropped and done."""
        if keeper.fd < 0:
            return
        keeper.drop()
        if keeper in self._idle:
            self._idle.remove(keeper)
        # Its descriptors close before its orphans get their new parent: reaper waits for its whole death.
        if keeper.pid in self.keepers:
            self.discard(keeper)
