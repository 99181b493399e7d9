"""Owns what is done inside a sandbox's own namespaces for a bucket: making its mount, putting it there, taking it away.

Run by mounts as a process of its own, with one socket. Invariant: from the moment it stands in the sandbox it is that
sandbox's root and nobody else, imports nothing, and takes no step through a symbolic link; what it cannot do there a
sandbox's root could not do either, but for mounting itself.
"""

from __future__ import annotations

import array
import contextlib
import errno
import json
import os
import re
import socket
import stat
import sys
from typing import Any, NoReturn

from kennel.node import linux

_INSIDE = linux.CLONE_NEWUSER | linux.CLONE_NEWNS
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OCTAL = re.compile(r"\\([0-7]{3})")
_MOST = 4 << 20
"""Bytes of a mount table: 8 mounts of a path of 1 KiB in it are few."""


def main() -> NoReturn:
    """Does what argv asks, tells it on descriptor 0, and is gone."""
    line = socket.socket(fileno=0)
    asked = json.loads(sys.argv[2])
    try:
        told = _attach(line, asked) if asked["verb"] == "attach" else _detach(asked)
    except OSError as failure:
        # The kernel's number alone: what else an exception holds may be the sandbox's words.
        told = {"errno": failure.errno or errno.EIO}
    line.send(json.dumps(told).encode())
    # Not exit: whatever that would still import lies in the sandbox now.
    os._exit(0)


def _attach(line: socket.socket, asked: dict[str, Any]) -> dict[str, Any]:
    devices = _devices(asked["stage"])
    _enter(asked["pidfd"])
    # Early, and again at the end: a place that cannot be is refused before anybody asks the store.
    with contextlib.suppress(FileNotFoundError):
        _require_empty(_follow(asked["parts"]))
    device = os.open("fuse", os.O_RDWR | os.O_CLOEXEC, dir_fd=devices)
    words = {"source": asked["source"], "fd": str(device), "rootmode": "40000", "user_id": "0", "group_id": "0"}
    # allow_other is everybody in this sandbox's user namespace; whoever stands outside, root too, is refused.
    mount = linux.new_mount(
        "fuse", {**words, "subtype": "s3fs"}, ["allow_other", *(["ro"] if asked["readOnly"] else [])]
    )
    line.sendmsg([b"{}"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [device]))])
    os.close(device)
    # Waits until s3fs answers for the root, or is gone.
    number = os.fstat(mount).st_dev
    line.send(json.dumps({"device": f"{os.major(number)}:{os.minor(number)}"}).encode())
    if line.recv(16) != b"go":
        raise OSError(errno.ECANCELED, "not wanted any more")
    folder, made = _walk(asked["parts"])
    linux.attach_at(mount, folder)
    return {"made": made}


def _detach(asked: dict[str, Any]) -> dict[str, Any]:
    table = os.open(f"/proc/{asked['pid']}/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
    _enter(asked["pidfd"])
    for place in _places(table, asked["device"]):
        # Not by its whole path: with a link on the way that could be another mount, a mask over /proc say.
        parts = place.split("/")[2:]
        folder = _follow(parts[:-1])
        os.fchdir(folder)
        linux.umount(parts[-1], linux.MNT_DETACH if asked["force"] else 0)
        if asked["made"]:
            try:
                os.rmdir(parts[-1])
            except OSError:
                continue  # something lies in there, or it went away
    if _places(table, asked["device"]):
        raise OSError(errno.EBUSY, "it is still there")
    return {}


def _devices(stage: str) -> int:
    """A folder that nobody else sees, with a device of FUSE that may be opened from another user namespace."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("kennel", stage, "tmpfs", linux.MS_NOSUID | linux.MS_NOEXEC, "mode=755,size=4k")
    os.mknod(f"{stage}/fuse", stat.S_IFCHR | 0o600, os.stat("/dev/fuse").st_rdev)
    os.chmod(f"{stage}/fuse", 0o666)
    return os.open(stage, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _enter(pidfd: int) -> None:
    """From here on this is the sandbox's root in the sandbox's files."""
    sys.path.clear()
    sys.meta_path.clear()
    linux.setns(pidfd, _INSIDE)
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    os.umask(0o022)


def _follow(parts: list[str]) -> int:
    """The folder at the end of the way from /workspace, which crosses no link and no mount."""
    here = os.open("/workspace", _FOLDER)
    device = os.fstat(here).st_dev
    for part in parts:
        inner = os.open(part, _FOLDER, dir_fd=here)
        os.close(here)
        here = inner
        if os.fstat(here).st_dev != device:
            raise OSError(errno.EXDEV, "another file system is mounted there")
    return here


def _walk(parts: list[str]) -> tuple[int, bool]:
    """The empty folder at the end of the way, made where it is missing; whether the last one was."""
    made = False
    for depth, part in enumerate(parts):
        above = _follow(parts[:depth])
        try:
            os.mkdir(part, 0o755, dir_fd=above)
            made = True
        except FileExistsError:
            made = False
        os.close(above)
    here = _follow(parts)
    _require_empty(here)
    return here, made


def _require_empty(here: int) -> None:
    reading = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here)
    with os.scandir(reading) as found:
        if next(found, None) is not None:
            raise OSError(errno.ENOTEMPTY, "something lies in there")
    os.close(reading)


def _places(table: int, device: str) -> list[str]:
    """Where a file system is mounted now, the newest first."""
    raw = b""
    os.lseek(table, 0, os.SEEK_SET)
    # The kernel gives a page at a time.
    while len(raw) < _MOST and (piece := os.read(table, 1 << 16)):
        raw += piece
    text = raw.decode("utf-8", "surrogateescape")
    rows = [line.split(" ") for line in text.splitlines()]
    found = [row[4] for row in rows if len(row) > 4 and row[2] == device and row[4].startswith("/workspace/")]
    return [_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), place) for place in reversed(found)]
