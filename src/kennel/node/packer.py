"""Owns the way to the confined processes that touch a sandbox's files: starting the first, running a job, ending it.

Called by pack and layers. Invariant: a job has a deadline and leaves nothing behind: when `run` returns, its process is
gone, however it ended; node itself reads nothing of the files, only the job's one answer.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import kennel
from kennel.node import priority
from kennel.wire.errors import STATUS, KennelError, error

MAX_LINE = 64 * 1024
MEMORY = 1 << 30
"""Bytes of address space of one job: what 4 million names in one directory need is more, and refused."""

URGENT_SECONDS = 3.0
"""How long a job may go before all others while its sandbox is frozen: millions of names are no concern of theirs."""

# The package itself is not imported: the process needs only its own few files, and starts in half the time.
_BOOT = """
import sys, types
for name, path in (("kennel", sys.argv[1]), ("kennel.node", sys.argv[1] + "/node")):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = [path]
from kennel.node.packing.process import main
main()
"""

Progress = Callable[[int, int], None]
"""Called with names and bytes so far, about twice a second while a job runs."""


class Cancel:
    """Ends a job from another thread: what waits for it raises PACK_FAILED once the job is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: socket.socket | None = None
        self.asked = False

    def ask(self) -> None:
        with self._lock:
            self.asked = True
            if self._line is not None:
                self._line.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def over(self, line: socket.socket) -> Iterator[None]:
        """Whoever asks within the block ends the job behind `line`; who asked before did too."""
        with self._lock:
            self._line = line
            if self.asked:
                line.shutdown(socket.SHUT_RDWR)
        try:
            yield
        finally:
            with self._lock:
                self._line = None


class Packer:
    """Runs confined jobs; safe for many threads."""

    def __init__(self, at_once: int = 8) -> None:
        self._lock = threading.Lock()
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._room = threading.BoundedSemaphore(at_once)

    def start(self) -> None:
        """Starts the process that jobs are forked from (25 ms); `run` does it too when it is missing."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            self._end()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                package = str(Path(kennel.__file__).resolve().parent)
                words = [sys.executable, "-S", "-E", "-s", "-P", "-B", "-X", "utf8", "-c", _BOOT, package]
                self._process = subprocess.Popen(words, stdin=theirs.fileno(), env={"LANG": "C.UTF-8"}, cwd="/")
            self._line = ours

    def close(self) -> None:
        """Ends it, and with it every job."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._line is not None:
            self._line.close()
        if self._process is not None:
            self._process.wait(10)
        self._line = self._process = None

    def run(
        self,
        words: dict[str, Any],
        descriptors: Sequence[int],
        *,
        seconds: float,
        max_image: int,
        progress: Progress | None = None,
        ready: Callable[[], None] | None = None,
        scanned: Callable[[], None] | None = None,
        cancel: Cancel | None = None,
    ) -> dict[str, Any]:
        """The answer of one job; typed errors: PACK_TIMEOUT, PACK_FAILED and what the job itself refuses.

        `ready` is called when a live pack waits for the freeze, `scanned` when it no longer needs it.
        """
        limits = {"max_image": max_image, "max_memory": MEMORY, "max_seconds": int(seconds) + 1}
        message = json.dumps({**words, **limits}).encode()
        deadline = time.monotonic() + seconds
        if not self._room.acquire(timeout=seconds):
            raise error("PACK_TIMEOUT", f"no room for the work within {seconds:g} seconds")
        try:
            with ExitStack() as held:
                ours = self._send(message, descriptors, held)
                if cancel is not None:
                    held.enter_context(cancel.over(ours))
                job = _Job(ours, deadline, seconds)
                try:
                    return job.follow(progress, ready, scanned)
                finally:
                    job.end()
        finally:
            self._room.release()

    def _send(self, message: bytes, descriptors: Sequence[int], held: ExitStack) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        held.enter_context(ours)
        with theirs:
            for attempt in range(2):
                self.start()
                line = self._line
                try:
                    if line is None:
                        raise OSError("closed")
                    socket.send_fds(line, [message], [theirs.fileno(), *descriptors])
                    return ours
                except OSError as failure:
                    if attempt:
                        raise error("PACK_FAILED", f"the packing process does not answer: {failure}") from failure
                    with suppress(subprocess.TimeoutExpired):
                        if self._process is not None:
                            self._process.wait(1)
        raise AssertionError("unreachable")


class _Job:
    """One job in progress."""

    def __init__(self, line: socket.socket, deadline: float, seconds: float) -> None:
        self._line, self._deadline, self._seconds = line, deadline, seconds
        self._handle: int | None = None
        self._answered = False
        self._urgent_until = float("inf")

    def follow(
        self,
        progress: Progress | None,
        ready: Callable[[], None] | None,
        scanned: Callable[[], None] | None,
    ) -> dict[str, Any]:
        while True:
            said = self._next()
            self._answered = "done" in said or "failed" in said
            if "done" in said:
                return dict(said["done"])
            if "failed" in said:
                raise _refusal(said)
            if "progress" in said and progress is not None:
                progress(*said["progress"])
            elif "ready" in said:
                self._hurry(priority.URGENT)
                if ready is not None:
                    ready()
                self._line.send(b"go")
            elif "scanned" in said and scanned is not None:
                scanned()
                self._hurry(0)

    def _hurry(self, nice: int) -> None:
        self._urgent_until = time.monotonic() + URGENT_SECONDS if nice else float("inf")
        if self._handle is not None:
            priority.hurry(self._handle, nice)

    def _next(self) -> dict[str, Any]:
        message, handles = self._receive()
        if handles:
            self._handle = handles[0]
        if not message:
            raise error("PACK_FAILED", "the packing process ended early: out of memory, or over its CPU limit")
        said = json.loads(message)
        return said if isinstance(said, dict) else {}

    def _receive(self) -> tuple[bytes, list[int]]:
        while True:
            now = time.monotonic()
            if now >= self._deadline:
                raise self._late()
            if now >= self._urgent_until:
                self._hurry(0)
            self._line.settimeout(min(self._deadline, self._urgent_until) - now)
            with suppress(TimeoutError):
                message, handles, _, _ = socket.recv_fds(self._line, MAX_LINE, 1)
                return message, handles

    def _late(self) -> KennelError:
        return error("PACK_TIMEOUT", f"the work took more than {self._seconds:g} seconds")

    def end(self) -> None:
        """Kills the job if it still runs, and waits until it is gone: it holds the sandbox's disk."""
        if self._handle is None:
            return
        try:
            with suppress(ProcessLookupError):
                # A job that has answered ends by itself; any other is killed at once: the sandbox may be frozen.
                if not select.select([self._handle], [], [], 0.5 if self._answered else 0)[0]:
                    signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            select.select([self._handle], [], [], 10)
        finally:
            os.close(self._handle)


def _refusal(said: dict[str, Any]) -> KennelError:
    code = said["failed"] if said["failed"] in STATUS else "PACK_FAILED"
    details = None
    if said.get("path"):
        raw = base64.b64decode(said["path"])
        details = {"path": raw.decode(errors="replace")}
        if raw.decode(errors="replace").encode() != raw:
            details["pathBase64"] = said["path"]
    return error(code, f"{said['message']}{': ' + details['path'] if details else ''}", details=details)
