"""The guest as a program: what it imports, what its start costs, that its folder alone is enough under any name."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kennel.guest
from kennel.guest import framing

SOURCE = Path(kennel.guest.__file__).parent
SLOW = {
    "json",
    "re",
    "enum",
    "socket",
    "signal",
    "ctypes",
    "typing",
    "asyncio",
    "dataclasses",
    "collections",
    "subprocess",
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The folder, alone, under another name, compiled as in a sandbox."""
    target = tmp_path / "inside"
    shutil.copytree(SOURCE, target, ignore=shutil.ignore_patterns("__pycache__"))
    words = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(target)]
    subprocess.run(words, check=True, timeout=60)
    return target


def test_it_imports_nothing_slow_and_nothing_of_ours_but_its_folder(copy: Path) -> None:
    code = (
        f"import sys; sys.path.append({str(copy.parent)!r}); import inside.service, inside.session; print(*sys.modules)"
    )
    words = [sys.executable, "-I", "-S", "-B", "-c", code]
    loaded = set(subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout.split())
    assert loaded & SLOW == set()
    assert not [name for name in loaded if name.startswith("kennel")]
    assert {name for name in loaded if name.startswith("inside.")} >= {"inside.framing", "inside.exec", "inside.shell"}


def test_sessions_are_not_loaded_by_the_start(copy: Path) -> None:
    code = f"import sys; sys.path.append({str(copy.parent)!r}); import inside.service; print(*sys.modules)"
    words = [sys.executable, "-I", "-S", "-B", "-c", code]
    loaded = set(subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout.split())
    assert not loaded & {"inside.session", "inside.shell", "inside.typed", "inside.exports"}


def test_it_starts_greets_and_is_small(copy: Path) -> None:
    """As a plain child: not PID 1, no namespace. CPU is the least of five starts, for the machine may be busy."""
    least = min(_start(copy) for _ in range(5))
    assert least < 0.06, f"{least * 1000:.0f} ms of CPU"  # 17 ms on a quiet machine


def _start(folder: Path) -> float:
    path = str(folder.parent / "s")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as sock:
        listener.bind(path)
        listener.listen(4)
        words = [sys.executable, "-I", "-S", "-B", str(folder / "__main__.py")]
        pid = os.posix_spawn(sys.executable, words, {}, file_actions=[(os.POSIX_SPAWN_DUP2, listener.fileno(), 3)])
        try:
            sock.settimeout(10)
            sock.connect(path)
            kind, channel, payload = framing.Decoder(framing.FROM_GUEST).feed(sock.recv(4096))[0]
            assert (kind, channel) == (framing.HELLO, 0)
            greeting = framing.read_control(payload)
            assert framing.agree(greeting) == 1
            assert {"exec", "session.open", "session.exec"} <= set(greeting["operations"])
            cpu = float(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
            time.sleep(0.05)
            everyone = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
            assert sum(map(_private, everyone)) < 8 * 1024 * 1024
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            os.unlink(path)
    return cpu


def _private(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
