"""Owns journals: which paths of a tree changed since a version, for callers that come back now and then.

Begun by the operation `watch.changes`. Invariant: a journal is bounded in paths and in idle time, there are few; a
version that it can no longer answer for is answered with `resync`, never with less than what changed.
"""

from __future__ import annotations

import os
from time import monotonic

from .accounts import Accounts
from .chore import Chore
from .loop import Loop
from .paths import Rights, path_of, text
from .refusal import Refusal
from .tree_watch import TreeWatch
from .watching import tree_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .channel import Channel
    from .chore import Steps

IDLE = 600.0
"""Seconds without a question after which a journal goes."""
MOST_JOURNALS = 16
MOST_PATHS = 10_000
MOST_TOLD = 5_000
"""Paths of one answer; more changes than that are a reason to look again."""


class Journal:
    """One tree's changes, newest last."""

    def __init__(self, tree: TreeWatch, top: bytes) -> None:
        self.tree = tree
        self.id = os.urandom(8).hex()
        self.used = monotonic()
        self.over = False
        self._top = top
        self._count = 0
        self._floor = 0
        self._paths: dict[bytes, int] = {}

    def changed(self, kind: str, path: bytes, is_directory: bool) -> None:
        """Something happened."""
        self._count += 1
        self._paths.pop(path, None)
        self._paths[path] = self._count
        if len(self._paths) > MOST_PATHS:
            oldest = next(iter(self._paths))
            self._floor = self._paths.pop(oldest)

    def overflow(self) -> None:
        """Something was missed: nothing before now can be answered for."""
        self._count += 1
        self._floor = self._count
        self._paths.clear()

    def ended(self, reason: str) -> None:
        """The tree is gone."""
        self.over = True

    def answer(self, since: int | None) -> dict[str, Any]:
        """What changed after `since`."""
        self.used = monotonic()
        self.tree.drain()
        told: dict[str, Any] = {"version": f"{self.id}:{self._count}", "paths": []}
        if since is None:
            return {**told, "status": "unchanged"}
        newer: list[bytes] = []
        for path in reversed(self._paths):
            if self._paths[path] <= since or len(newer) > MOST_TOLD:
                break
            newer.append(path)
        if since < self._floor or since > self._count or len(newer) > MOST_TOLD:
            return {**told, "status": "resync", "reason": "expired"}
        full = [text(os.path.join(self._top, path) if path else self._top) for path in reversed(newer)]
        return {**told, "status": "changed" if full else "unchanged", "paths": full}


class ChangeOperations:
    """Every journal."""

    def __init__(self, loop: Loop, accounts: Accounts) -> None:
        self._loop = loop
        self._accounts = accounts
        self._journals: dict[str, Journal] = {}
        self._keys: dict[str, str] = {}

    def begin(self, channel: Channel, args: dict[str, Any]) -> Chore:
        """Answers for a version, or begins a journal."""
        path = path_of(args)
        return Chore(self._loop, channel, Rights(None), path, self._steps(path, args))

    def _steps(self, path: bytes, args: dict[str, Any]) -> Steps:
        self._tidy()
        key = repr(sorted((name, value) for name, value in args.items() if name not in ("op", "since")))
        number, found = self._known(args.get("since"))
        if found is not None:
            return found.answer(number)
        journal = self._journals.get(self._keys.get(key, ""))
        if journal is None:
            journal = yield from self._make(path, args, key)
        told = journal.answer(None)
        return told if args.get("since") is None else {**told, "status": "resync", "reason": "restarted"}

    def _known(self, since: Any) -> tuple[int, Journal | None]:
        if since is None:
            return 0, None
        name, _, number = since.partition(":") if type(since) is str else ("", "", "")
        if not number.isascii() or not number.isdigit() or len(number) > 18:
            raise Refusal("VALIDATION_FAILED", "since must be a version that this gave before")
        return int(number), self._journals.get(name)

    def _make(self, path: bytes, args: dict[str, Any], key: str) -> Any:
        tree = tree_of(self._loop, self._accounts, args)
        journal = Journal(tree, path.rstrip(b"/") or b"/")
        placed = False
        try:
            yield from tree.place(journal)
            placed = True
        finally:
            if not placed:
                tree.close()
        while len(self._journals) >= MOST_JOURNALS:
            self._end(min(self._journals.values(), key=lambda one: one.used))
        self._journals[journal.id] = journal
        self._keys[key] = journal.id
        self._loop.later(IDLE, self._tidy)
        return journal

    def _tidy(self) -> None:
        for journal in list(self._journals.values()):
            if journal.over or monotonic() - journal.used >= IDLE:
                self._end(journal)

    def _end(self, journal: Journal) -> None:
        del self._journals[journal.id]
        self._keys = {key: name for key, name in self._keys.items() if name != journal.id}
        journal.tree.close()
