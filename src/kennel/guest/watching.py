"""Owns one watch as its channel sees it: events gathered for a moment, merged by path, sent within credit.

Begun by the operation `watch.follow`. Invariant: what waits is bounded; what does not fit becomes one `overflow`, and
the newest events survive it.
"""

from __future__ import annotations

import os
from time import time

from . import codec, framing
from .accounts import Accounts
from .globs import Globs, globs_of
from .loop import Loop
from .paths import Rights, flag_of, path_of, text
from .refusal import Refusal
from .tree_watch import TreeWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .channel import Channel

GATHER = 0.075
"""Seconds that events wait for others about the same path."""
MOST_PENDING = 10_000
_PIECE = 48 * 1024
EXCLUDED = [".git", "node_modules", ".DS_Store"]
_MERGED: dict[tuple[str, str], str | None] = {
    ("create", "modify"): "create", ("create", "attrib"): "create", ("create", "delete"): None,
    ("create", "move_from"): None, ("modify", "attrib"): "modify", ("delete", "create"): "modify",
    ("move_to", "modify"): "move_to", ("move_to", "attrib"): "move_to", ("create", "create"): "create",
}  # fmt: skip
"""What two events about one path come to; the later one where nothing is said, nothing where None."""


def tree_of(loop: Loop, accounts: Accounts, args: dict[str, Any]) -> TreeWatch:
    """The watch that an operation asks for."""
    include: Globs | None = None
    if args.get("include") is not None:
        include = globs_of(args, "include", [])
    return TreeWatch(
        loop,
        path_of(args).rstrip(b"/") or b"/",
        Rights.asked(args, accounts),
        recursive=flag_of(args, "recursive", True),
        include=include,
        exclude=globs_of(args, "exclude", EXCLUDED),
    )


class Watching:
    """A channel that follows a tree."""

    def __init__(self, loop: Loop, accounts: Accounts, channel: Channel, args: dict[str, Any]) -> None:
        self._loop = loop
        self._channel = channel
        self._top = path_of(args).rstrip(b"/") or b"/"
        self._tree = tree_of(loop, accounts, args)
        self._placing = self._tree.place(self)
        self._pending: dict[bytes, tuple[str, bool, int]] = {}
        self._overflowed = False
        self._reason: str | None = None
        self._gathering = False
        self._over = False
        try:
            next(self._placing)
        except BaseException:
            self._tree.close()
            raise
        channel.opened()
        loop.later(0, self._place)

    def _place(self) -> None:
        if self._over:
            return
        for _ in range(8):
            if next(self._placing, self) is self:
                self._channel.head({"watches": self._tree.size})
                self._send()
                return
        self._loop.later(0, self._place)

    # --- what the tree says

    def changed(self, kind: str, path: bytes, is_directory: bool) -> None:
        """Something happened."""
        before = self._pending.pop(path, None)
        merged: str | None = kind
        if before is not None:
            merged = _MERGED.get((before[0], kind), kind)
        if merged is not None:
            self._pending[path] = (merged, is_directory, int(time() * 1000))
        if len(self._pending) > MOST_PENDING:
            self._pending.clear()
            self._overflowed = True
        self._gather()

    def overflow(self) -> None:
        """Something was missed."""
        self._overflowed = True
        self._gather()

    def ended(self, reason: str) -> None:
        """The tree is gone."""
        self._reason = reason
        self._gather()

    def _gather(self) -> None:
        if not self._gathering and not self._over:
            self._gathering = True
            self._loop.later(GATHER, self._gathered)

    def _gathered(self) -> None:
        self._gathering = False
        self._send()

    def _send(self) -> None:
        if self._over or self._gathering:
            return
        while (self._overflowed or self._pending) and self._channel.room > _PIECE + 16 * 1024:
            self._channel.output(framing.STDOUT, self._piece())
        if self._reason is not None and not self._pending and not self._overflowed:
            self._over = True
            self._tree.close()
            self._channel.end(framing.RESULT, {"reason": self._reason})

    def _piece(self) -> bytes:
        lines: list[bytes] = []
        size = 0
        if self._overflowed:
            self._overflowed = False
            lines.append(codec.encode({"kind": "overflow", "path": text(self._top), "dir": True, "at": _now()}) + b"\n")
        while self._pending and size < _PIECE:
            path = next(iter(self._pending))
            kind, is_directory, at = self._pending.pop(path)
            full = os.path.join(self._top, path) if path else self._top
            lines.append(codec.encode({"kind": kind, "path": text(full), "dir": is_directory, "at": at}) + b"\n")
            size += len(lines[-1])
        return b"".join(lines)

    # --- what the peer says

    def flow(self) -> None:
        """There may be room for output."""
        self._send()

    def data(self, payload: bytes) -> None:
        """Takes no bytes."""
        self._channel.consumed(len(payload))

    def eof(self) -> None:
        """Takes no bytes."""

    def signal(self, number: int) -> None:
        """Runs nothing that could be signalled."""

    def close(self) -> None:
        """Nobody follows any more."""
        if not self._over:
            self._over = True
            self._placing.close()
            self._tree.close()
            self._channel.refuse(Refusal("OPERATION_INTERRUPTED", "the caller left"))


def _now() -> int:
    return int(time() * 1000)
