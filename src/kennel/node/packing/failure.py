"""Owns how a confined job says that it cannot go on: a code of wire/errors, words, and the path it met.

Called by every file of packing; standard library only. Invariant: what leaves the process is a code from a fixed set.
"""

from __future__ import annotations

import errno

_CODES = {
    errno.ENOSPC: "NO_SPACE",
    errno.EDQUOT: "NO_SPACE",
    errno.EFBIG: "PACK_TOO_LARGE",
    errno.ENAMETOOLONG: "PATH_TOO_LONG",
    errno.EMFILE: "PATH_TOO_LONG",
    errno.EPIPE: "OPERATION_INTERRUPTED",
}


class Refused(Exception):
    """A typed end of a job."""

    def __init__(self, code: str, message: str, path: bytes | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.path = code, message, path


def of(failure: BaseException) -> Refused:
    """Any failure as a typed one: a full disk, a damaged file system (EIO, EUCLEAN and the like), too little memory."""
    if isinstance(failure, Refused):
        return failure
    if isinstance(failure, MemoryError):
        return Refused("PACK_TOO_LARGE", "the tree needs more memory than a pack may use")
    if isinstance(failure, OSError):
        code = _CODES.get(failure.errno or 0, "FILESYSTEM_ERROR")
        return Refused(code, f"{failure.strerror or failure}")
    return Refused("INTERNAL_ERROR", f"{type(failure).__name__}: {failure}")
