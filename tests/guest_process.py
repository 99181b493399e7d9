"""Owns a guest started as a real process, PID 1 of its own namespace, for tests of guest and relay together.

The same start as in a sandbox (interpreter flags, listening socket as descriptor 3), without walls around it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import kennel.guest
from kennel.relay.link import GuestLink, open_guest

MAIN = Path(kennel.guest.__file__).parent / "__main__.py"
UNSHARE = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"]
_PREPARE = """
cut -d" " -f5 /proc/self/mountinfo | grep /node/ | while read -r mounted; do umount -l "$mounted" 2>/dev/null; done
mount -t tmpfs tmpfs /dev/shm && exec "$@"
"""
OWN_SHM = ["sh", "-c", _PREPARE, "sh"]
"""The namespace gets its own /dev/shm, so that sessions leave nothing on the machine,
and holds no disk of an installation that runs beside."""


class GuestProcess:
    """One running guest; `pid` is its number outside of its namespace."""

    def __init__(self, main: Path = MAIN, prefix: tuple[str, ...] = ()) -> None:
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            pytest.skip("needs root and unshare")
        self.folder = tempfile.mkdtemp(prefix="kennel-guest-")
        self.path = f"{self.folder}/s"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.path)
            listener.listen(64)
            words = [*UNSHARE, *OWN_SHM, *prefix, sys.executable, "-I", "-S", "-B", str(main)]
            actions = [(os.POSIX_SPAWN_DUP2, listener.fileno(), 3)]
            self.errors = os.open(f"{self.folder}/errors", os.O_WRONLY | os.O_CREAT)
            actions.append((os.POSIX_SPAWN_DUP2, self.errors, 2))
            self._outer = os.posix_spawn("/usr/bin/unshare", words, dict(os.environ), file_actions=actions)
        self.pid = self._inner()

    def _inner(self) -> int:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            found = Path(f"/proc/{self._outer}/task/{self._outer}/children").read_text().split()
            if found and "__main__.py" in Path(f"/proc/{found[0]}/cmdline").read_text():
                return int(found[0])
            time.sleep(0.001)
        raise AssertionError("the guest did not start")

    async def connect(self) -> GuestLink:
        """A new connection, greeted."""
        return await open_guest(self.socket(), 10.0)

    def socket(self) -> socket.socket:
        """A new connection, bare."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(5)
        sock.connect(self.path)
        return sock

    def complaints(self) -> str:
        """What the guest wrote to its standard error."""
        return Path(f"{self.folder}/errors").read_text()

    def memory(self) -> int:
        """Resident bytes of PID 1 now."""
        return _status(self.pid, "VmRSS") * 1024

    def commands(self) -> list[str]:
        """The command lines of everything in the namespace but the guest's own processes and zombies."""
        return [line for line in self.processes().values() if line and "__main__.py" not in line]

    def processes(self) -> dict[int, str]:
        """Pid outside → command line, of everything in the namespace."""
        name = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    if os.readlink(f"/proc/{entry}/ns/pid") == name:
                        found[int(entry)] = Path(f"/proc/{entry}/cmdline").read_text().replace("\0", " ").strip()
                except OSError:
                    continue
        return found

    def descriptors(self) -> int:
        """Open descriptors of PID 1."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    @contextmanager
    def held(self) -> Iterator[None]:
        """PID 1 stands still for the length of the block: to it, all that happens meanwhile happens at once."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to PID 1: the namespace dies with it."""
        os.kill(self.pid, 9)

    def close(self) -> None:
        """Ends it and removes its folder."""
        # Not left to --kill-child: its signal is void once the guest has worked with another user's rights. The number
        # cannot be somebody else's while the parent stands still.
        os.kill(self._outer, signal.SIGSTOP)
        with suppress(ProcessLookupError):
            self.kill()
        os.kill(self._outer, 9)
        os.waitpid(self._outer, 0)
        os.close(self.errors)
        shutil.rmtree(self.folder)


def _status(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise AssertionError(field)
