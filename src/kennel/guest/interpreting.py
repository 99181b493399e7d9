"""Owns the operation `interpreter`: the program that keeps this sandbox's code contexts, and connections to it.

Begun by each call about a context. Invariant: at most one such program runs; it outlives the connections and dies with
the sandbox, and when it ends by itself everything it started is killed, so that no kernel is left that nobody knows.
"""

from __future__ import annotations

import os

from . import launch, native
from .accounts import Accounts
from .archiving import interpreter
from .felling import Felling
from .folder import Folder
from .loop import Loop
from .pool import Keeper, Pool
from .refusal import Refusal, spawn_refusal
from .tether import Tether

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .channel import Channel

_PROGRAM = "interpreter/__main__.py"


class Interpreter:
    """The operation: connects to the program that runs, or starts one."""

    def __init__(self, loop: Loop, pool: Pool, accounts: Accounts) -> None:
        self._loop = loop
        self._pool = pool
        self._accounts = accounts
        self._hub: Hub | None = None

    def connect(self, channel: Channel, look: bool) -> Tether:
        """A connection to it, whether it ran before or not; a `look` starts none. What it refuses it says itself."""
        if self._hub is None or self._hub.over:
            if look:
                raise Refusal("CONTEXT_NOT_FOUND", "no code context runs in this sandbox")
            self._hub = Hub(self._loop, self._pool, self._accounts)
        path = self._hub.path
        refused = Refusal("INTERPRETER_NOT_READY", "the program that keeps the code contexts does not answer")
        return Tether(self._loop, channel, [lambda: native.local(path)], {}, refused)


class Hub:
    """One run of the program, as its subreaper's owner."""

    def __init__(self, loop: Loop, pool: Pool, accounts: Accounts) -> None:
        self._loop = loop
        self._felling: Felling | None = None
        self.over = False
        account = accounts.find(None)
        words = [*interpreter(), os.path.join(os.path.dirname(__file__), _PROGRAM)]
        job = launch.assemble([words[0]], tuple(words), launch.environment(account, {}), "/", account)
        self._folder = Folder(account.uid, account.gid)
        self.path = f"{self._folder.path}/s"
        try:
            self._keeper = self._launch(pool, job)
        except BaseException:
            self._folder.clear()
            raise

    def _launch(self, pool: Pool, job: launch.Job) -> Keeper:
        """Its input is the listening socket: callers queue there before it has begun, and are let go if it dies."""
        try:
            listener = native.local_listener(self.path)
        except OSError as problem:
            raise spawn_refusal(problem) from None
        nowhere = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
        try:
            return pool.run(job, [listener.fileno(), nowhere, nowhere], self)
        finally:
            listener.close()
            os.close(nowhere)

    def started(self, pid: int) -> None:
        """It runs."""

    def failed(self, stage: int, number: int) -> None:
        """It could not be started: its listener is gone, and every caller hears that."""
        self._end()

    def exited(self, status: int) -> None:
        """It ended, which it never does by itself: its kernels end too."""
        if self._keeper.owner is self:
            self._felling = Felling(self._loop, (self._keeper.pid,))
            self._felling.kill()
        self._end()

    def idle(self) -> None:
        """Nothing of it is left."""
        if self._felling is not None:
            self._felling.done()
            self._felling = None
        self._end()

    def lost(self) -> None:
        """Its subreaper was killed."""
        self.idle()

    def _end(self) -> None:
        """The next call starts another one."""
        if not self.over:
            self.over = True
            self._folder.clear()
