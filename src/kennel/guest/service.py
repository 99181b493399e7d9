"""Owns the guest as a whole: set-up of PID 1, the listening socket, the registry of operations.

Called by __main__. Invariant: it runs until its machine ends it; connections come and go, and running out of
descriptors delays the next one instead of spinning.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
from errno import EMFILE, ENFILE

from . import framing, git_identity, launch, native
from .accounts import Accounts
from .connection import Connection
from .exec import ExecOperation
from .loop import READ, Loop
from .pool import Pool
from .reaper import Reaper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .changes import ChangeOperations
    from .channel import Channel, Operation
    from .connection import Begin
    from .files import FileOperations
    from .interpreting import Interpreter
    from .processes import ProcessOperations
    from .session import SessionOperations
    from .terminals import TerminalOperations

LISTENER = 3
RUNTIME = "/.kennel/"
"""Where the guest lies in a real sandbox; elsewhere (tests) the file system is not ours to write to."""
FILE_VERBS = ("stat", "read", "write", "list", "mkdir", "move", "copy", "chmod", "delete", "link")
PROCESS_VERBS = ("start", "list", "get", "kill", "signal", "logs", "stdin", "wait", "awake", "ended", "port")
TERMINAL_VERBS = ("open", "attach", "resize", "list", "close")
_MOST_CONNECTIONS = 64
_BREATH = 0.1
"""Seconds without accepting after the descriptors ran out."""


class Service:
    """The parts of the guest, wired."""

    def __init__(self, listener: int) -> None:
        self.loop = Loop()
        self.pool = Pool(self.loop)
        self._reaper = Reaper(self.loop, self.pool)
        self._listener = native.listener(listener)
        self._connections: list[Connection] = []
        self._sessions: SessionOperations | None = None
        self._files: FileOperations | None = None
        self._runtime = os.urandom(8).hex()
        self.operations = self._registry()
        self._greeting = framing.hello(boot=self._runtime, operations=sorted(self.operations))
        self._listen()

    def _registry(self) -> dict[str, Begin]:
        accounts = Accounts()
        operations: dict[str, Begin] = {"exec": ExecOperation(self.loop, self.pool, accounts).begin}
        for verb in ("open", "exec", "close", "list", "state"):
            operations[f"session.{verb}"] = self._session(verb, accounts)
        for verb in FILE_VERBS:
            operations[f"file.{verb}"] = self._file(verb, accounts)
        operations["watch.follow"] = self._watch(accounts)
        operations["watch.changes"] = self._changed(accounts)
        for verb in ("pack", "unpack", "save", "restore"):
            operations[f"archive.{verb}"] = self._archive(verb, accounts)
        operations |= self._background(accounts)
        operations["connect"] = self._tether
        operations["interpreter"] = self._interpreter(accounts)
        operations["plant"] = _plant
        return operations

    def _background(self, accounts: Accounts) -> dict[str, Begin]:
        """Processes and terminals, which outlive a connection; imported by the first call that means them."""
        made: dict[str, ProcessOperations | TerminalOperations] = {}

        def of(noun: str) -> ProcessOperations | TerminalOperations:
            if noun not in made:
                from .processes import ProcessOperations
                from .terminals import TerminalOperations

                kind = ProcessOperations if noun == "process" else TerminalOperations
                made[noun] = kind(self.loop, self.pool, accounts, self._runtime)
            return made[noun]

        def begin(noun: str, verb: str) -> Begin:
            return lambda channel, args: of(noun).begin(verb, channel, args)

        verbs = [("process", verb) for verb in PROCESS_VERBS] + [("terminal", verb) for verb in TERMINAL_VERBS]
        return {f"{noun}.{verb}": begin(noun, verb) for noun, verb in verbs}

    def _tether(self, channel: Channel, args: dict[str, Any]) -> Operation:
        """A connection to a port."""
        from .tether import to_port

        return to_port(self.loop, channel, args)

    def _interpreter(self, accounts: Accounts) -> Begin:
        """A connection to the program that keeps the code contexts; the first one starts it."""
        interpreter: Interpreter | None = None

        def begin(channel: Channel, args: dict[str, Any]) -> Operation | None:
            nonlocal interpreter
            if interpreter is None:
                from .interpreting import Interpreter

                interpreter = Interpreter(self.loop, self.pool, accounts)
            return interpreter.connect(channel, args.get("look") is True)

        return begin

    def _watch(self, accounts: Accounts) -> Begin:
        """Following a tree."""

        def begin(channel: Channel, args: dict[str, Any]) -> Operation | None:
            from .watching import Watching

            return Watching(self.loop, accounts, channel, args)

        return begin

    def _changed(self, accounts: Accounts) -> Begin:
        """Journals of trees, which outlive a connection."""
        journals: ChangeOperations | None = None

        def begin(channel: Channel, args: dict[str, Any]) -> Operation | None:
            nonlocal journals
            if journals is None:
                from .changes import ChangeOperations

                journals = ChangeOperations(self.loop, accounts)
            return journals.begin(channel, args)

        return begin

    def _archive(self, verb: str, accounts: Accounts) -> Begin:
        """A verb of archives; imported by each call, which starts an interpreter anyway."""

        def begin(channel: Channel, args: dict[str, Any]) -> Operation | None:
            from .archiving import ArchiveOperations

            return ArchiveOperations(self.loop, self.pool, accounts).begin(verb, channel, args)

        return begin

    def _file(self, verb: str, accounts: Accounts) -> Begin:
        """A verb of files; imported by the first call as well."""

        def begin(channel: Channel, args: dict[str, Any]) -> Operation | None:
            if self._files is None:
                from .files import FileOperations

                self._files = FileOperations(self.loop, accounts)
            return self._files.begin(verb, channel, args)

        return begin

    def _session(self, verb: str, accounts: Accounts) -> Begin:
        """A verb of sessions; their files are imported by the first call, 3 ms of every start otherwise."""

        def begin(channel: Channel, args: dict[str, Any]) -> Operation | None:
            if self._sessions is None:
                from .session import SessionOperations

                self._sessions = SessionOperations(self.loop, self.pool, accounts)
            begun: Operation | None = getattr(self._sessions, verb)(channel, args)
            return begun

        return begin

    def _listen(self) -> None:
        self.loop.watch(self._listener.fileno(), READ, self._accept)

    def _accept(self, events: int) -> None:
        try:
            fd = native.accept(self._listener)
        except BlockingIOError:
            return
        except OSError as problem:
            if problem.errno in (EMFILE, ENFILE):
                self.loop.forget(self._listener.fileno())
                self.loop.later(_BREATH, self._listen)
            return
        if len(self._connections) >= _MOST_CONNECTIONS:
            os.close(fd)
            return
        connection = Connection(self.loop, fd, self.operations, self._greeting)
        connection.on_gone = self._connections.remove
        self._connections.append(connection)


def become_init() -> None:
    """Makes this process fit to be PID 1: nothing ends it, nothing looks into it, orphans come to it."""
    native.ignore_signals()
    native.not_dumpable()
    native.become_subreaper()
    native.back_in_line()
    os.umask(0o022)
    os.chdir("/")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open("/dev/null", os.O_RDWR)
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(640)


def _plant(channel: Channel, args: dict[str, Any]) -> None:
    """Variables for every command of this start."""
    channel.end(framing.RESULT, launch.plant(args))


def main() -> None:
    """Serves on descriptor 3 until the process is killed."""
    become_init()
    if __file__.startswith(RUNTIME):
        git_identity.plant()
    service = Service(LISTENER)
    service.pool.prepare()
    # What exists now lives for ever: outside of the collector's sight it also stays shared with forked subreapers.
    gc.collect()
    gc.freeze()
    service.loop.run()
