"""Owns the way of bytes into a file: beside its place first, there at once when all have come.

Begun by the `file.write` operation. Invariant: the old file is there, whole, until the new one takes its name, whole,
with the old one's mode and owner; a caller that leaves, a full disk or the end of the guest leave nothing behind.
"""

from __future__ import annotations

import errno
import os
from stat import S_IMODE, S_ISDIR, S_ISREG

from . import framing
from .paths import Rights, description, flag_of, mode_of, refusal, shown
from .refusal import Refusal
from .trees import forget, temporary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .channel import Channel

_NO_NAMELESS = frozenset((errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL))
_USUAL = 0o644
_AHEAD = 1536 * 1024
"""Bytes of a file that may be under way beyond the usual window: they are written as they come."""


class Writing:
    """One file in the making."""

    def __init__(self, channel: Channel, path: bytes, args: dict[str, Any], rights: Rights) -> None:
        self._channel = channel
        self._rights = rights
        self._path = path
        self._mode = mode_of(args)
        self._exclusive = flag_of(args, "exclusive")
        self._parents = flag_of(args, "parents", True)
        self._fd = -1
        self._name: bytes | None = None
        self._size = 0
        try:
            with rights:
                self._begin()
        except OSError as problem:
            raise refusal(problem, path) from None
        channel.opened()
        channel.widen(_AHEAD)

    def _begin(self) -> None:
        if self._path.endswith((b"/", b"/.", b"/..")):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        self._target = os.path.realpath(self._path)
        self._old = _old(self._target)
        if self._old is not None and self._exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if self._old is not None and self._rights.owner is not None:
            # A rename asks only for the directory's permission; writing should take the file's too.
            os.close(os.open(self._target, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
        folder = os.path.dirname(self._target)
        if self._parents and not os.path.isdir(folder):
            _make(folder)
        if len(os.path.basename(self._target)) > 255:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        try:
            # Without a name nothing can be left over, whatever ends the guest.
            self._fd = os.open(folder, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            if problem.errno not in _NO_NAMELESS:
                raise
            name = temporary(self._target)
            self._fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            self._name = name

    # --- what the peer says

    def data(self, payload: bytes) -> None:
        """More bytes."""
        if self._fd >= 0:
            try:
                view = memoryview(payload)
                while view:
                    view = view[os.write(self._fd, view) :]
            except OSError as problem:
                self._refuse(refusal(problem, self._path))
                return
            self._size += len(payload)
        self._channel.consumed(len(payload))

    def eof(self) -> None:
        """All bytes have come: the file takes its place."""
        if self._fd < 0:
            return
        try:
            with self._rights:
                self._commit()
                told = description(self._target)
        except OSError as problem:
            self._refuse(refusal(problem, self._path))
            return
        self._close()
        self._channel.end(framing.RESULT, {**told, "created": self._old is None})

    def _commit(self) -> None:
        old = self._old
        mode = self._mode if self._mode is not None else S_IMODE(old.st_mode) if old is not None else _USUAL
        if old is not None and self._rights.owner is None:
            os.fchown(self._fd, old.st_uid, old.st_gid)
        os.fchmod(self._fd, mode)
        if self._name is None and (old is None or self._exclusive):
            try:
                self._link(self._target)
                return
            except FileExistsError:
                if self._exclusive:
                    raise
        if self._name is None:
            name = temporary(self._target)
            self._link(name)
            self._name = name
        if self._exclusive:
            os.link(self._name, self._target)
            forget(self._name)
        else:
            os.rename(self._name, self._target)
        self._name = None

    def _link(self, name: bytes) -> None:
        """Gives the nameless file a name, which nothing may have."""
        # Only linkat follows the link in /proc to the file itself, and only a dir_fd makes Python use it.
        folder = os.open(os.path.dirname(name), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.link(b"/proc/self/fd/%d" % self._fd, os.path.basename(name), src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)

    def flow(self) -> None:
        """Sends nothing."""

    def signal(self, number: int) -> None:
        """Runs nothing that could be signalled."""

    def close(self) -> None:
        """The caller left: as if it had never begun."""
        if self._fd >= 0:
            self._refuse(Refusal("OPERATION_INTERRUPTED", "the caller left before the file was whole"))

    def _refuse(self, refused: Refusal) -> None:
        self._close()
        self._channel.refuse(refused)

    def _close(self) -> None:
        os.close(self._fd)
        self._fd = -1
        if self._name is not None:
            forget(self._name)
            self._name = None


def _make(folder: bytes) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None


def _old(target: bytes) -> os.stat_result | None:
    """The file that is there now; OSError when what is there is no file."""
    try:
        found = os.lstat(target)
    except FileNotFoundError:
        return None
    if S_ISREG(found.st_mode):
        return found
    if S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if os.path.islink(target):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    raise Refusal("FILESYSTEM_ERROR", f"{shown(target)} is not a regular file", path=shown(target), errno="ENOTSUP")
