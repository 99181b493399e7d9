"""Owns what happens to whole trees: removing one, copying one, moving one to another file system.

Called by the file operations, in steps. Invariant: a symbolic link is an entry like any other: what it points to is
never removed, entered or changed; a file appears at its destination whole or not at all.
"""

from __future__ import annotations

import errno
import os
from stat import S_IMODE, S_ISDIR, S_ISFIFO, S_ISLNK, S_ISREG

from .refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    Breaths = Generator[None, None, None]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 1024 * 1024
"""Bytes the kernel copies in one step."""
_BREATH = 64
_MOST_FOLDERS = 1000
"""Names of subdirectories held for one directory while a tree is removed."""
MAX_DEPTH = 512
"""Directories open at once."""


def erase(path: bytes) -> Breaths:
    """Removes the directory `path` and everything below it."""
    where, name = os.path.split(path.rstrip(b"/"))
    if not name:
        raise Refusal("RESOURCE_BUSY", "the root of the file system cannot be removed", path="/", errno="EBUSY")
    parent = os.open(where or b"/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield from erase_at(parent, os.fsdecode(name))
    finally:
        os.close(parent)


def erase_at(parent: int, name: str) -> Breaths:
    """Removes the directory `name` in an open directory."""
    levels: list[tuple[int, str, list[str]]] = [(os.open(name, _FOLDER, dir_fd=parent), name, [])]
    try:
        while levels:
            fd, own, folders = levels[-1]
            if not folders:
                yield from _unlink_in(fd, folders)
            if folders:
                inner = folders.pop()
                if len(levels) >= MAX_DEPTH:
                    raise Refusal("PATH_TOO_LONG", f"the tree is deeper than {MAX_DEPTH} directories")
                levels.append((os.open(inner, _FOLDER, dir_fd=fd), inner, []))
                continue
            levels.pop()
            os.close(fd)
            os.rmdir(own, dir_fd=levels[-1][0] if levels else parent)
            yield None
    finally:
        for fd, _, _ in levels:
            os.close(fd)


def _unlink_in(fd: int, folders: list[str]) -> Breaths:
    """Unlinks what is no directory; the names of some of those that are go to `folders`."""
    with os.scandir(fd) as found:
        for number, entry in enumerate(found, 1):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=fd)
            elif len(folders) < _MOST_FOLDERS:
                folders.append(entry.name)
            if number % _BREATH == 0:
                yield None


def copy(source: bytes, target: bytes, owner: tuple[int, int] | None, depth: int = 0) -> Breaths:
    """Copies whatever `source` is to the name `target`: mode, times and, for the guest itself, owner are kept."""
    found = os.lstat(source)
    if S_ISDIR(found.st_mode):
        if depth >= MAX_DEPTH:
            raise Refusal("PATH_TOO_LONG", f"the tree is deeper than {MAX_DEPTH} directories")
        yield from _copy_folder(source, target, owner, depth)
    elif S_ISLNK(found.st_mode):
        _place(target, lambda name: os.symlink(os.readlink(source), name))
    elif S_ISREG(found.st_mode):
        yield from _copy_file(source, target)
    elif S_ISFIFO(found.st_mode):
        _place(target, lambda name: os.mkfifo(name, S_IMODE(found.st_mode)))
    else:
        raise Refusal("FILESYSTEM_ERROR", "sockets and devices cannot be copied", errno="ENOTSUP")
    _dress(target, found, owner)
    yield None


def _copy_folder(source: bytes, target: bytes, owner: tuple[int, int] | None, depth: int) -> Breaths:
    try:
        os.mkdir(target, 0o700)
    except FileExistsError:
        if not os.path.isdir(target) or os.path.islink(target):
            raise
    with os.scandir(source) as found:
        for entry in found:
            yield from copy(entry.path, os.path.join(target, entry.name), owner, depth + 1)


def _copy_file(source: bytes, target: bytes) -> Breaths:
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    name = temporary(target)
    try:
        writing = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            at = 0
            while count := os.sendfile(writing, reading, at, _PIECE):
                at += count
                yield None
        finally:
            os.close(writing)
        os.rename(name, target)
    except BaseException:
        forget(name)
        raise
    finally:
        os.close(reading)


def _place(target: bytes, make: object) -> None:
    """Makes something that has no content beside the target, and renames it there."""
    name = temporary(target)
    make(name)  # type: ignore[operator]
    try:
        os.rename(name, target)
    except OSError:
        forget(name)
        raise


def _dress(target: bytes, found: os.stat_result, owner: tuple[int, int] | None) -> None:
    uid, gid = owner or (found.st_uid, found.st_gid)
    try:
        os.chown(target, uid, gid, follow_symlinks=False)
    except OSError as problem:
        if problem.errno != errno.EPERM:
            raise
    if not S_ISLNK(found.st_mode):
        os.chmod(target, S_IMODE(found.st_mode))
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns), follow_symlinks=False)


def temporary(target: bytes) -> bytes:
    """A name beside `target` that nothing has."""
    folder = os.path.dirname(target)
    return os.path.join(folder, b".kennel-%s.part" % os.urandom(10).hex().encode())


def forget(name: bytes) -> None:
    """Removes a temporary file, if it is still there."""
    try:
        os.unlink(name)
    except OSError:
        return


def move(source: bytes, target: bytes, owner: tuple[int, int] | None) -> Breaths:
    """Renames; onto another file system by copying beside the target, renaming there and removing the source."""
    try:
        os.rename(source, target)
        return
    except OSError as problem:
        if problem.errno != errno.EXDEV:
            raise
    folder = os.path.isdir(source) and not os.path.islink(source)
    if folder and os.path.lexists(target):
        os.rmdir(target)  # rename(2) replaces an empty directory and nothing else
    name = temporary(target)
    try:
        yield from copy(source, name, owner)
        os.rename(name, target)
    except BaseException:
        if folder and os.path.isdir(name):
            for _ in erase(name):
                pass
        else:
            forget(name)
        raise
    if folder:
        yield from erase(source)
    else:
        os.unlink(source)
