"""Owns the guest's way of saying no: a code of the wire's table, a message, details.

Raised by every operation, turned into an ERROR frame by connection. Invariant: the code is one the host knows; what
cannot be named better is INTERNAL_ERROR.
"""

from __future__ import annotations

from errno import E2BIG, EACCES, EAGAIN, EMFILE, ENAMETOOLONG, ENFILE, ENOENT, ENOMEM, ENOTDIR
from os import strerror

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OUT_OF_ROOM = frozenset((EAGAIN, EMFILE, ENFILE, ENOMEM))
NOT_THERE = frozenset((ENOENT, ENOTDIR))


class Refusal(Exception):
    """This call is refused or failed; `details` are for programs."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    def to_control(self) -> dict[str, Any]:
        """The payload of an ERROR frame."""
        body: dict[str, Any] = {"code": self.code, "message": self.message[:2000]}
        if self.details:
            body["details"] = self.details
        return body


def spawn_refusal(problem: OSError) -> Refusal:
    """Why a process could not be made, as the caller should hear it."""
    if problem.errno == E2BIG:
        return Refusal("INVALID_COMMAND", "the command and its environment are too long for the kernel")
    text = strerror(problem.errno) if problem.errno else str(problem)
    return Refusal("PROCESS_SPAWN_FAILED", f"no process could be started: {text}", errno=problem.errno or 0)


def cwd_refusal(path: str, number: int) -> Refusal:
    """Why a working directory cannot be one."""
    if number in (ENOENT, ENOTDIR, EACCES, ENAMETOOLONG):
        return Refusal("INVALID_PROCESS_CWD", f"cannot work in {path}: {strerror(number)}", cwd=path)
    return Refusal("PROCESS_SPAWN_FAILED", f"cannot enter {path}: {strerror(number)}", cwd=path, errno=number)
