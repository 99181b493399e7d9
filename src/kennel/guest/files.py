"""Owns the file operations of the guest: which there are, what each is asked with, what it answers.

Begun by the operations `file.*`. Invariant: an operation that takes more than a few system calls is a chore; whatever
a path turns out to be, the answer is a result or a refusal with Linux's name for it.
"""

from __future__ import annotations

import errno
import os
from stat import S_ISDIR

from . import framing
from .accounts import Accounts
from .chore import Chore
from .listing import Listing, after_of
from .loop import Loop
from .paths import Rights, description, flag_of, mode_of, path_of, refusal, shown, text
from .reading import Reading, range_of
from .refusal import Refusal
from .trees import copy, erase, move
from .writing import Writing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .channel import Channel, Operation
    from .chore import Steps

MOST_LISTED = 10_000
"""Entries of one page of a listing."""


class FileOperations:
    """The verbs, by name."""

    def __init__(self, loop: Loop, accounts: Accounts) -> None:
        self._loop = loop
        self._accounts = accounts

    def begin(self, verb: str, channel: Channel, args: dict[str, Any]) -> Operation | None:
        """Begins one operation."""
        rights = Rights.asked(args, self._accounts)
        path = path_of(args)
        begun: Operation | None = getattr(self, f"_{verb}")(channel, path, args, rights)
        return begun

    def _chore(self, channel: Channel, rights: Rights, path: bytes, steps: Steps) -> Chore:
        return Chore(self._loop, channel, rights, path, steps)

    def _answer(self, channel: Channel, rights: Rights, path: bytes, act: Any) -> None:
        """Does a thing of a few system calls, and answers what it returns."""
        try:
            with rights:
                told = act()
        except OSError as problem:
            raise refusal(problem, path) from None
        channel.end(framing.RESULT, told)

    def _stat(self, channel: Channel, path: bytes, args: dict[str, Any], rights: Rights) -> None:
        follow = flag_of(args, "follow", True)
        self._answer(channel, rights, path, lambda: description(path, follow))

    def _read(self, channel: Channel, path: bytes, args: dict[str, Any], rights: Rights) -> Chore:
        reading = Reading(path, *range_of(args), rights)
        return self._chore(channel, rights, path, reading.steps(channel))

    def _write(self, channel: Channel, path: bytes, args: dict[str, Any], rights: Rights) -> Writing:
        return Writing(channel, path, args, rights)

    def _list(self, channel: Channel, path: bytes, args: dict[str, Any], rights: Rights) -> Chore:
        limit = args.get("limit")
        if limit is not None and (type(limit) is not int or not 1 <= limit <= MOST_LISTED):
            raise Refusal("VALIDATION_FAILED", f"limit must be a whole number from 1 to {MOST_LISTED}")
        listing = Listing(
            recursive=flag_of(args, "recursive"), hidden=flag_of(args, "hidden"), limit=limit, after=after_of(args)
        )
        return self._chore(channel, rights, path, listing.steps(path))

    def _mkdir(self, channel: Channel, path: bytes, args: dict[str, Any], rights: Rights) -> None:
        recursive, mode = flag_of(args, "recursive"), mode_of(args)

        def make() -> dict[str, Any]:
            if recursive:
                os.makedirs(path, exist_ok=True)
            else:
                os.mkdir(path)
            if mode is not None:
                os.chmod(path, mode)
            return description(path, True)

        self._answer(channel, rights, path, make)

    def _chmod(self, channel: Channel, path: bytes, args: dict[str, Any], rights: Rights) -> None:
        mode = mode_of(args)
        if mode is None:
            raise Refusal("VALIDATION_FAILED", "mode is needed")

        def change() -> dict[str, Any]:
            os.chmod(path, mode)
            return description(path, True)

        self._answer(channel, rights, path, change)

    def _link(self, channel: Channel, path: bytes, args: dict[str, Any], rights: Rights) -> None:
        target = args.get("target")
        if type(target) is not str or not target or "\0" in target:
            raise Refusal("INVALID_PATH", "target must be a path without NUL")

        def link() -> dict[str, Any]:
            os.symlink(target.encode("utf-8", "surrogateescape"), path)
            return description(path)

        self._answer(channel, rights, path, link)

    def _delete(self, channel: Channel, path: bytes, args: dict[str, Any], rights: Rights) -> Chore | None:
        recursive = flag_of(args, "recursive")
        try:
            with rights:
                folder = S_ISDIR(os.lstat(path).st_mode)
                if not folder:
                    os.unlink(path)
        except OSError as problem:
            raise refusal(problem, path) from None
        if not folder:
            channel.end(framing.RESULT, {})
            return None
        if not recursive:
            raise Refusal(
                "IS_DIRECTORY", f"{shown(path)} is a directory: say recursive", path=shown(path), errno="EISDIR"
            )
        return self._chore(channel, rights, path, _ended(erase(path)))

    def _move(self, channel: Channel, path: bytes, args: dict[str, Any], rights: Rights) -> Chore:
        return self._transplant(channel, path, args, rights, keep=False)

    def _copy(self, channel: Channel, path: bytes, args: dict[str, Any], rights: Rights) -> Chore:
        return self._transplant(channel, path, args, rights, keep=True)

    def _transplant(self, channel: Channel, path: bytes, args: dict[str, Any], rights: Rights, *, keep: bool) -> Chore:
        """A copy or a move to the path `to`; `into` allows `to` to be a directory that it goes into."""
        asked, into, recursive = path_of(args, "to"), flag_of(args, "into"), flag_of(args, "recursive")
        overwrite = flag_of(args, "overwrite", True)

        def checked() -> bytes:
            source = os.lstat(path)
            if keep and S_ISDIR(source.st_mode) and not recursive:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            target = asked
            if into and os.path.isdir(target):
                target = os.path.join(target, os.path.basename(path.rstrip(b"/")))
            if not overwrite and os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            if keep and _inside(path, target):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            return target

        try:
            with rights:
                target = checked()
        except OSError as problem:
            raise refusal(problem, path) from None
        work = copy(path, target, rights.owner) if keep else move(path, target, rights.owner)
        return self._chore(channel, rights, path, _ended(work, target))


def _inside(path: bytes, target: bytes) -> bool:
    """Whether a copy to `target` would copy itself."""
    source, target = os.path.realpath(path), os.path.realpath(target)
    return target == source or target.startswith(source.rstrip(b"/") + b"/")


def _ended(steps: Any, path: bytes | None = None) -> Steps:
    """Work on a tree as a chore; `path` is where its outcome lies."""
    yield from steps
    return {} if path is None else {"path": text(path), **description(path)}
