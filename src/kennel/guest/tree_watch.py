"""Owns the watch over one tree: inotify on each of its directories, kept so while they come, go and move.

Made by watching and changes. Invariant: whoever listens hears of every change or of an overflow; directories that are
excluded cost no watch; the number of watches is bounded.
"""

from __future__ import annotations

import errno
import os

from .globs import Globs
from .inotify import (
    ATTRIB,
    CREATE,
    DELETE,
    DELETE_SELF,
    IGNORED,
    IS_DIR,
    MODIFY,
    MOVE_SELF,
    MOVED_FROM,
    MOVED_TO,
    OVERFLOW,
    Event,
    Inotify,
)
from .loop import READ, Loop
from .paths import Rights, refusal
from .refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Protocol

    class Listener(Protocol):
        """Who hears what happens; paths are relative to the tree's top."""

        def changed(self, kind: str, path: bytes, is_directory: bool) -> None: ...
        def overflow(self) -> None: ...
        def ended(self, reason: str) -> None: ...


MOST_WATCHES = 65_536
_BREATH = 128
_PASSING = b".kennel-"
"""How our own unfinished files begin; they come and go within one write."""
_KINDS = ((CREATE, "create"), (DELETE, "delete"), (MOVED_FROM, "move_from"), (MODIFY, "modify"), (ATTRIB, "attrib"))


class TreeWatch:
    """One tree; `place` it, then events arrive until `close`."""

    def __init__(
        self, loop: Loop, top: bytes, rights: Rights, *, recursive: bool, include: Globs | None, exclude: Globs
    ) -> None:
        self._loop = loop
        self._top = top
        self._rights = rights
        self._recursive = recursive
        self._include = include
        self._exclude = exclude
        self._paths: dict[int, bytes] = {}
        self._cookies: set[int] = set()
        self._growing: list[Generator[None, None, None]] = []
        self._listener: Listener | None = None
        try:
            self._inotify = Inotify()
        except OSError as problem:
            raise Refusal("WATCH_START_ERROR", f"no watch could be made: {problem.strerror}") from None

    @property
    def size(self) -> int:
        """Directories that are watched."""
        return len(self._paths)

    def place(self, listener: Listener) -> Generator[None, None, None]:
        """Puts the watches there, in steps; after that the listener hears."""
        self._listener = listener
        try:
            with self._rights:
                self._root = self._add(b"")
        except OSError as problem:
            raise refusal(problem, self._top) from None
        yield from self._scan(b"", tell=False)
        self._loop.watch(self._inotify.fd, READ, self._ready)

    def close(self) -> None:
        """No more events."""
        self._listener = None
        for steps in self._growing:
            steps.close()
        self._growing.clear()
        if self._inotify.fd >= 0:
            self._loop.close(self._inotify.fd)
            self._inotify.fd = -1

    # --- directories

    def _full(self, path: bytes) -> bytes:
        return os.path.join(self._top, path) if path else self._top

    def _add(self, path: bytes) -> int:
        if len(self._paths) >= MOST_WATCHES:
            raise OSError(errno.ENOSPC, f"more than {MOST_WATCHES} directories")
        # The dot: the top may be a link to a directory, what is below it may not.
        watch = self._inotify.add(self._full(path) if path else self._top + b"/.")
        self._paths[watch] = path
        return watch

    def _scan(self, path: bytes, tell: bool) -> Generator[None, None, None]:
        """Watches the directories below `path`; with `tell` what is found there counts as created."""
        pending = [path]
        while pending:
            inside = pending.pop()
            try:
                with self._rights, os.scandir(self._full(inside)) as found:
                    entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
            except OSError:
                continue  # gone, or out of that user's reach
            for number, (name, is_directory) in enumerate(entries, 1):
                below = inside + b"/" + name if inside else name
                if tell:
                    self._tell("create", below, is_directory)
                if is_directory and self._recursive and not self._exclude.match(below):
                    self._try_to_add(below)
                    pending.append(below)
                if number % _BREATH == 0:
                    yield
            yield

    def _try_to_add(self, path: bytes) -> None:
        try:
            with self._rights:
                self._add(path)
        except OSError as problem:
            # Gone again is fine; out of watches means that something will be missed.
            if problem.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                self._overflow()

    def _drop(self, path: bytes) -> None:
        """A directory left the tree: its watches would go on under a name it no longer has."""
        prefix = path + b"/"
        for watch, own in list(self._paths.items()):
            if own == path or own.startswith(prefix):
                del self._paths[watch]
                self._inotify.remove(watch)

    def _grow(self, path: bytes, tell: bool) -> None:
        if self._exclude.match(path):
            return
        self._try_to_add(path)
        self._growing.append(self._scan(path, tell))
        if len(self._growing) == 1:
            self._loop.later(0, self._more)

    def _more(self) -> None:
        """A few steps of what is being grown."""
        for _ in range(8):
            if not self._growing:
                return
            if next(self._growing[0], self) is self:
                del self._growing[0]
        if self._growing:
            self._loop.later(0, self._more)

    # --- events

    def drain(self) -> None:
        """Takes what the kernel holds now."""
        while self._inotify.fd >= 0 and (events := self._inotify.read()):
            for event in events:
                self._take(event)

    def _ready(self, events: int) -> None:
        for event in self._inotify.read():
            self._take(event)

    def _take(self, event: Event) -> None:
        watch, mask, cookie, name = event
        if mask & OVERFLOW:
            self._overflow()
            self._growing.append(self._scan(b"", tell=False))
            self._loop.later(0, self._more)
            return
        inside = self._paths.get(watch)
        if mask & IGNORED:
            self._paths.pop(watch, None)
        if inside is None:
            return
        if mask & (DELETE_SELF | MOVE_SELF | IGNORED):
            if watch == self._root and self._listener is not None:
                self._listener.ended("deleted" if mask & (DELETE_SELF | IGNORED) else "moved")
            return
        if name:
            self._happened(inside + b"/" + name if inside else name, name, mask, cookie)
        elif mask & ATTRIB and watch == self._root:
            self._tell("attrib", b"", True)

    def _happened(self, path: bytes, name: bytes, mask: int, cookie: int) -> None:
        is_directory = bool(mask & IS_DIR)
        if name.startswith(_PASSING) and name.endswith(b".part"):
            if mask & MOVED_FROM and len(self._cookies) < 64:
                self._cookies.add(cookie)
            return
        if mask & MOVED_TO:
            written = cookie in self._cookies
            self._cookies.discard(cookie)
            self._tell("modify" if written else "move_to", path, is_directory)
        for bit, kind in _KINDS:
            if mask & bit and not (bit == ATTRIB and self._nameless(path, name)):
                self._tell(kind, path, is_directory)
        if is_directory and self._recursive:
            if mask & MOVED_FROM:
                self._drop(path)
            elif mask & (CREATE | MOVED_TO):
                self._grow(path, tell=bool(mask & CREATE))

    def _nameless(self, path: bytes, name: bytes) -> bool:
        """Whether this is the number that an overlay gives a file without a name, such as our own unfinished ones."""
        return name[:1] == b"#" and name[1:].isdigit() and not os.path.lexists(self._full(path))

    def _tell(self, kind: str, path: bytes, is_directory: bool) -> None:
        if self._listener is None or (path and self._exclude.match(path)):
            return
        if self._include is None or self._include.match(path):
            self._listener.changed(kind, path, is_directory)

    def _overflow(self) -> None:
        if self._listener is not None:
            self._listener.overflow()
