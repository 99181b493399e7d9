"""Owns the folders and small files of an installation: who owns them, the admin key, who runs now.

Called by up, down and doctor. Invariant: the admin key exists once, 0600, and only its hash leaves this file; a
process id is believed only with its start time, so that a recycled number is never signalled.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import time
from pathlib import Path
from typing import IO, Any

from kennel.settings import CONTROL_UID, GATEWAY_UID, Settings


def make(settings: Settings) -> None:
    """Makes the folders of the installation that are not there."""
    data = settings.data
    data.mkdir(parents=True, exist_ok=True, mode=0o711)
    os.chmod(data, 0o711)
    for name, mode, owner in (
        ("run", 0o711, 0),
        ("run/.root", 0o700, 0),
        ("logs", 0o700, 0),
        ("node", 0o711, 0),
        ("control", 0o700, CONTROL_UID),
        ("gateway", 0o700, GATEWAY_UID),
    ):
        folder = data / name
        folder.mkdir(exist_ok=True, mode=mode)
        os.chmod(folder, mode)
        if os.geteuid() == 0:
            os.chown(folder, owner, owner)


def admin_key(data: Path) -> tuple[Path, str]:
    """The key's file, made on the first start, and the SHA-256 of the key."""
    path = data / "admin.key"
    if not path.exists():
        fresh = data / ".admin.key.new"
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(f"kn_{secrets.token_urlsafe(32)}\n")
        os.replace(fresh, path)
    return path, hashlib.sha256(path.read_text().strip().encode()).hexdigest()


def noted(settings: Settings, name: str) -> str | None:
    """What `up` wrote down while it runs: `url`, or `preview-base`."""
    try:
        return (settings.data / name).read_text().strip()
    except FileNotFoundError:
        return None


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is none (or only a zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def note_process(settings: Settings, name: str, pid: int) -> None:
    """Remembers that `name` runs as `pid`."""
    path = settings.run / f"{name}.pid"
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"pid": pid, "start": start_time(pid)}))
    os.replace(fresh, path)


def running(settings: Settings, name: str) -> int | None:
    """The pid that `name` runs as now."""
    try:
        noted: dict[str, Any] = json.loads((settings.run / f"{name}.pid").read_text())
    except (OSError, ValueError):
        return None
    pid = noted.get("pid")
    return pid if isinstance(pid, int) and start_time(pid) == noted.get("start") is not None else None


def lock(settings: Settings, seconds: float = 0.0) -> IO[str] | None:
    """The installation's lock, held while the returned file is open; None while somebody else holds it."""
    stream = open(settings.run / "lock", "w")  # noqa: SIM115  the open file is the lock
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return stream
        except BlockingIOError:
            if time.monotonic() >= deadline:
                stream.close()
                return None
            time.sleep(0.05)
