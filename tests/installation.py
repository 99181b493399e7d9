"""Owns a real installation for tests: started by `up`, ended by `down`, counted after.

Used by the fixtures of conftest. Invariant: the machine is left as it was found: the end fails when a process, mount,
loop device, namespace or cgroup of the installation is left.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kennel import Kennel
from kennel.adapters.images.store import ImageStore
from kennel.node import guest_runtime


class Installation:
    """One Kennel of the tests' own, in a folder of its own, on a free port."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.data = folder
        self.settings = settings
        self.url = ""
        self.key = ""
        self.prefix: list[str] = []
        """Words before the command that starts the services."""

    def up(self, *words: str) -> None:
        done = self._run("up", "--detach", "--json", "--port", "0", *words)
        assert done.returncode == 0, done.stderr
        self.url = json.loads(done.stdout)["url"]
        self.key = (self.data / "admin.key").read_text().strip()

    def down(self) -> None:
        done = self._run("down")
        assert done.returncode == 0, done.stderr

    def _run(self, command: str, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **{f"KENNEL_{name.upper()}": value for name, value in self.settings.items()}}
        module = [
            *self.prefix,
            sys.executable,
            "-P",
            "-m",
            f"kennel.installation.{command}",
            "--data",
            str(self.data),
            *words,
        ]
        return subprocess.run(
            module, capture_output=True, text=True, timeout=120, env=environment, stdin=subprocess.DEVNULL, check=False
        )

    def client(self, **words: Any) -> Kennel:
        return Kennel(url=self.url, api_key=self.key, **words)

    def cli(self, *words: str, stdin: bytes = b"", timeout: float = 60) -> subprocess.CompletedProcess[bytes]:
        """The command line as a person's process."""
        environment = {**os.environ, "KENNEL_DATA": str(self.data)}
        command = [sys.executable, "-m", "kennel.cli", *words]
        return subprocess.run(command, input=stdin, capture_output=True, env=environment, timeout=timeout, check=False)

    def pid(self, service: str) -> int:
        return int(json.loads((self.data / "run" / f"{service}.pid").read_text())["pid"])

    def kill(self, service: str) -> int:
        """SIGKILLs a service and waits until another process has taken its place; the new pid."""
        old = self.pid(service)
        os.kill(old, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while self.pid(service) == old:
            assert time.monotonic() < deadline, f"{service} did not come back"
            time.sleep(0.01)
        return self.pid(service)

    def events(self, path: str, project: str = "default") -> list[dict[str, Any]]:
        """A stream, read from the log's file itself."""
        with sqlite3.connect(f"file:{self.data}/control/kennel.db?mode=ro", uri=True) as database:
            rows = database.execute(
                "select type, payload, offset from events where project = ? and path = ? order by offset",
                (project, path),
            ).fetchall()
        return [{"type": kind, "payload": json.loads(payload), "offset": offset} for kind, payload, offset in rows]

    def residue(self) -> list[str]:
        """What on this machine still carries the installation's name."""
        from kennel.settings import Settings

        name, folder = Settings(data=self.data).installation, str(self.data)
        found = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if folder in line]
        found += [f"loop {p}" for p in Path("/sys/block").glob("loop*/loop/backing_file") if folder in _text(p)]
        # A hierarchy each (v1) or one for all (v2); not rglob, which fails on a group that goes while it looks.
        hierarchies = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*/")]
        found += [f"cgroup {group}" for group in (p / "kennel" / name for p in hierarchies) if group.is_dir()]
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            words = _text(process)
            if folder in words:
                found.append(f"process {process.parent.name} {words[:200]}")
        return found


PACKAGE = "\nPackage: kennel-test\nVersion: 1\n"
"""One more row for `see_own_packages`."""

_OWN_PACKAGES = """
while read -r _ _ _ _ place _; do
  case $place in /var/tmp/kennel-test-*) umount -l "$place";; esac
done < /proc/self/mountinfo
mount --bind "$0" /var/lib/dpkg/status && exec "$@"
"""


def see_own_packages(installation: Installation) -> Path:
    """From its next `up` on the services see this file as the machine's list of packages; nobody else does.

    They run in a mount namespace of their own, which lets go of what other installations have mounted: it would keep
    their loop devices for as long as it lasts.
    """
    status = installation.data / "status"
    if not status.exists():
        status.write_text(Path("/var/lib/dpkg/status").read_text())
    installation.prefix = ["unshare", "--mount", "sh", "-c", _OWN_PACKAGES, str(status)]
    return status


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@cache
def _prepared() -> Path:
    """What a first start makes of this machine (the guest's runtime, the host image), made once for all installations.

    8,600 files: a first start takes 8 s of CPU with them and 1 s without.
    """
    folder = Path(tempfile.mkdtemp(prefix="kennel-test-prepared-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, folder)
    guest_runtime.ensure(folder / "guest")
    ImageStore(folder / "images").host_image().prepare()
    return folder


def make_installation(
    kind: type[Installation] = Installation, *, prepared: bool = True, **settings: str
) -> Iterator[Installation]:
    """An installation that is up, and down and counted afterwards; its start is a first one without `prepared`."""
    if os.geteuid() != 0:
        pytest.skip("needs root: namespaces and mounts are real here")
    folder = Path(tempfile.mkdtemp(prefix="kennel-test-", dir="/var/tmp"))
    folder.chmod(0o711)
    if prepared:
        # Hard links: nothing of it is ever written in place, or chmodded.
        subprocess.run(["cp", "-al", str(_prepared()), str(folder / "node")], check=True)
    settings = {"floor_disk": "1000000000", "floor_fraction": "0.02", **settings}
    made = kind(folder, **settings)
    try:
        made.up()
        yield made
    finally:
        made.down()
        left = made.residue()
        assert not left, left
        shutil.rmtree(folder)
