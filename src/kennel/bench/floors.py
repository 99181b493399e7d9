"""Owns the floors: what this machine needs for the bare parts of what Kennel does, measured in the same run.

Called by the benchmarks. Invariant: a floor runs no code of Kennel's path, except `guest alone`, which says so.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import kennel.guest
from kennel.adapters.oci.bundle import probe_config
from kennel.adapters.oci.runtime import hard_limits
from kennel.domain.command import Command
from kennel.relay.link import open_guest


def spawn() -> None:
    """posix_spawn of `true`, and the wait for it."""
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)


def fork_exec() -> None:
    """fork and exec of `true` from this process, and the wait for it."""
    pid = os.fork()
    if pid == 0:
        try:
            os.execv("/bin/true", ["true"])
        finally:
            os._exit(127)
    os.waitpid(pid, 0)


def runc_run(times: int, runtime: str = "runc") -> list[float]:
    """Milliseconds of `runc run` of `true` with Kennel's walls over the host's /usr: made, run, deleted."""
    samples = []
    with tempfile.TemporaryDirectory(prefix="kennel-floor-") as folder:
        os.chmod(folder, 0o711)
        root = Path(folder, "root")
        for part in ("bin", "usr", "lib", "lib64", "proc", "dev", "sys"):
            (root / part).mkdir(parents=True)
        Path(folder, "config.json").write_text(json.dumps(probe_config(str(root), hard_limits())))
        for number in range(times):
            words = [runtime, "--root", f"{folder}/state", "run", "--bundle", folder, f"floor{os.getpid()}x{number}"]
            begun = time.perf_counter()
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=30)
            samples.append((time.perf_counter() - begun) * 1000)
    return samples


def guest_alone(times: int) -> tuple[float, list[float]]:
    """Milliseconds until a guest without walls greets, and of each exec of `true` through it by the relay."""
    with tempfile.TemporaryDirectory(prefix="kennel-floor-") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/s")
        listener.listen(8)
        begun = time.perf_counter()
        pid = _spawn_guest(listener)
        try:
            return asyncio.run(_drive(f"{folder}/s", begun, times))
        finally:
            os.kill(pid, signal.SIGKILL)  # unshare ignores SIGTERM; its --kill-child takes the guest with it
            os.waitpid(pid, 0)


def _spawn_guest(listener: socket.socket) -> int:
    main = Path(kennel.guest.__file__).parent / "__main__.py"
    words = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child", sys.executable, "-I", "-S", "-B", str(main)]
    actions = [(os.POSIX_SPAWN_DUP2, listener.fileno(), 3)]
    return os.posix_spawn("/usr/bin/unshare", words, dict(os.environ), file_actions=actions)


async def _drive(path: str, begun: float, times: int) -> tuple[float, list[float]]:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    guest = await open_guest(connection, 10.0)
    ready = (time.perf_counter() - begun) * 1000
    command = Command(argv=("true",), cwd="/")
    await guest.exec(command)
    samples = []
    for _ in range(times):
        at = time.perf_counter()
        await guest.exec(command)
        samples.append((time.perf_counter() - at) * 1000)
    await guest.close()
    return ready, samples
