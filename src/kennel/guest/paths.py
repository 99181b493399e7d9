"""Owns what every file operation of the guest begins with: paths as bytes, whose rights count, errors by Linux's names.

Called by the file operations. Invariant: a path is absolute, without NUL and within PATH_MAX before the kernel sees it;
whoever's rights were taken on for a step, the guest has its own again after it.
"""

from __future__ import annotations

import errno
import os
from stat import S_IMODE, S_ISDIR, S_ISLNK, S_ISREG

from . import native
from .accounts import Account, Accounts
from .refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_PATH = 4095
_MAX_MODE = 0o7777
_CODES = {
    errno.ENOENT: "FILE_NOT_FOUND", errno.EACCES: "PERMISSION_DENIED", errno.EPERM: "PERMISSION_DENIED",
    errno.EEXIST: "FILE_EXISTS", errno.ENOTEMPTY: "FILE_EXISTS", errno.EISDIR: "IS_DIRECTORY",
    errno.ENOTDIR: "NOT_DIRECTORY", errno.ENOSPC: "NO_SPACE", errno.EDQUOT: "NO_SPACE", errno.EFBIG: "FILE_TOO_LARGE",
    errno.EMFILE: "TOO_MANY_FILES", errno.ENFILE: "TOO_MANY_FILES", errno.EBUSY: "RESOURCE_BUSY",
    errno.ETXTBSY: "RESOURCE_BUSY", errno.EROFS: "READ_ONLY", errno.ENAMETOOLONG: "NAME_TOO_LONG",
    errno.ELOOP: "TOO_MANY_LINKS", errno.EMLINK: "TOO_MANY_LINKS", errno.EINVAL: "INVALID_PATH",
}  # fmt: skip


def refusal(problem: OSError, path: bytes) -> Refusal:
    """What a system call's failure means to the caller, with the kernel's own name for it."""
    number = problem.errno or 0
    name = errno.errorcode.get(number, str(number))
    text = os.strerror(number) if number else str(problem)
    return Refusal(_CODES.get(number, "FILESYSTEM_ERROR"), f"{shown(path)}: {text}", path=shown(path), errno=name)


def shown(path: bytes) -> str:
    """A path as text for people: what is not UTF-8 is replaced, what is long is cut."""
    return path[:1000].decode("utf-8", "replace")


def path_of(args: dict[str, Any], name: str = "path") -> bytes:
    """A path among the arguments of a call, as the kernel takes it; INVALID_PATH, NAME_TOO_LONG."""
    value = args.get(name)
    if type(value) is not str or not value.startswith("/") or "\0" in value:
        raise Refusal("INVALID_PATH", f"{name} must be an absolute path without NUL")
    try:
        path = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Refusal("INVALID_PATH", f"{name} holds half a character") from None
    if len(path) > MAX_PATH:
        raise Refusal("NAME_TOO_LONG", f"a path has at most {MAX_PATH} bytes", path=shown(path), errno="ENAMETOOLONG")
    return path


def text(path: bytes | str) -> str:
    """A path or name as it travels: bytes that are not UTF-8 as lone surrogates."""
    return path.decode("utf-8", "surrogateescape") if isinstance(path, bytes) else path


def mode_of(args: dict[str, Any]) -> int | None:
    """The `mode` argument: permission bits."""
    value = args.get("mode")
    if value is not None and (type(value) is not int or not 0 <= value <= _MAX_MODE):
        raise Refusal("VALIDATION_FAILED", "mode must be permission bits up to 07777")
    return value


def flag_of(args: dict[str, Any], name: str, default: bool = False) -> bool:
    """A yes or no among the arguments."""
    value = args.get(name, default)
    if type(value) is not bool:
        raise Refusal("VALIDATION_FAILED", f"{name} must be true or false")
    return value


def facts(found: os.stat_result) -> dict[str, Any]:
    """What a stat says, as it travels."""
    kind = found.st_mode
    word = "file" if S_ISREG(kind) else "directory" if S_ISDIR(kind) else "symlink" if S_ISLNK(kind) else "other"
    return {
        "type": word,
        "size": found.st_size,
        "mode": S_IMODE(kind),
        "uid": found.st_uid,
        "gid": found.st_gid,
        "mtime": found.st_mtime_ns,
        "ctime": found.st_ctime_ns,
        "inode": found.st_ino,
        "links": found.st_nlink,
    }


def description(path: bytes, follow: bool = False, dir_fd: int | None = None) -> dict[str, Any]:
    """A path's facts, for a symbolic link with its target."""
    told = facts(os.stat(path, dir_fd=dir_fd, follow_symlinks=follow))
    if told["type"] == "symlink":
        told["target"] = text(os.readlink(path, dir_fd=dir_fd))
    return told


class Rights:
    """Whose rights file operations use: a block within which the kernel sees that user's, not the guest's.

    Only the identity that file access goes by changes (setfsuid), and with it the capabilities over files; signals and
    memory of the guest stay out of that user's reach.
    """

    __slots__ = ("_account", "_groups")

    def __init__(self, account: Account | None) -> None:
        self._account = account
        self._groups: list[int] = []

    @classmethod
    def asked(cls, args: dict[str, Any], accounts: Accounts) -> Rights:
        """Those of the `user` argument; the guest's own without one. INVALID_USER."""
        user = args.get("user")
        if user is None:
            return cls(None)
        if type(user) is not str:
            raise Refusal("INVALID_USER", "user must be a text")
        account = accounts.find(user)
        return cls(None if account.uid == os.getuid() and account.gid == os.getgid() else account)

    @property
    def owner(self) -> tuple[int, int] | None:
        """Whom new files belong to, when that is not the guest."""
        return None if self._account is None else (self._account.uid, self._account.gid)

    def __enter__(self) -> None:
        account = self._account
        if account is None:
            return
        self._groups = os.getgroups()
        try:
            os.setgroups(account.groups)
            native.file_identity(account.uid, account.gid)
        except OSError:
            self.__exit__()
            raise Refusal("INVALID_USER", "the guest cannot take on that user's rights") from None

    def __exit__(self, *_: object) -> None:
        if self._account is not None:
            native.file_identity(os.getuid(), os.getgid())
            os.setgroups(self._groups)
