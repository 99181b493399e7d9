"""Owns the folders of sessions: named pipes and command files, through which a running bash meets fresh descriptors.

Called by shell and typed. Invariant: only the guest's user can change what lies in a folder, so a program of another
user can neither swap a file nor make the guest open something else; opening never blocks.
"""

from __future__ import annotations

import os
import stat

from .refusal import spawn_refusal

_PLACES = ("/dev/shm", "/run", "/tmp", "/var/tmp")


class Folder:
    """The folder of one shell; its files belong to `uid`:`gid`."""

    _home: str | None = None
    _count = 0

    def __init__(self, uid: int, gid: int) -> None:
        self._uid = uid
        self._gid = gid
        Folder._count += 1
        try:
            self.path = f"{_home()}/{Folder._count}"
            os.mkdir(self.path, 0o711)
            os.chmod(self.path, 0o711)
        except OSError as problem:
            raise spawn_refusal(problem) from None

    def pipe(self, name: str) -> str:
        """Makes a named pipe that only this folder's user may open; its path."""
        path = f"{self.path}/{name}"
        os.mkfifo(path, 0o600)
        if self._uid != os.getuid():
            os.chown(path, self._uid, self._gid)
        return path

    def open(self, name: str, flags: int) -> int:
        """One end of a named pipe, without waiting for the other."""
        fd = os.open(f"{self.path}/{name}", flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.close(fd)
            raise FileNotFoundError(name)
        return fd

    def write(self, name: str, data: bytes) -> str:
        """Makes a file that only this folder's user may read; its path."""
        path = f"{self.path}/{name}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            at = 0
            while at < len(data):
                at += os.write(fd, data[at:])
            if self._uid != os.getuid():
                os.fchown(fd, self._uid, self._gid)
        finally:
            os.close(fd)
        return path

    def remove(self, *names: str) -> None:
        """Removes what is there of `names`."""
        for name in names:
            try:
                os.unlink(f"{self.path}/{name}")
            except OSError:
                continue  # never made, or removed from inside

    def clear(self) -> None:
        """Removes the folder and what lies directly in it."""
        try:
            self.remove(*os.listdir(self.path))
            os.rmdir(self.path)
        except OSError:
            return  # removed, or filled with folders, from inside


def _home() -> str:
    """The folder of all folders, made on first use under a name nobody can have prepared."""
    if Folder._home is not None and os.path.isdir(Folder._home):
        return Folder._home
    problem = OSError("no place for a session's pipes")
    for place in _PLACES:
        path = f"{place}/.kennel-{os.urandom(8).hex()}"
        try:
            os.mkdir(path, 0o711)
        except OSError as failure:
            problem = failure
            continue
        os.chmod(path, 0o711)
        Folder._home = path
        return path
    raise problem
