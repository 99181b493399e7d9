"""Owns the events of a watched tree as control sees them, and answers about what changed; checked line by line.

Made by files: ports' Watch. Invariant: a kind of event that this version does not know, or a line that is none, ends
the link; nothing is passed over in silence.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, TypeVar

from kennel.domain.file import WATCH_KINDS, ChangeReport, WatchEvent, WatchOptions
from kennel.guest import framing
from kennel.guest.framing import FrameError
from kennel.relay.transfer import Transfer, path_in

T = TypeVar("T")
_MOST_LINE = 64 * 1024
_MOST_TOLD = 6000
_STATUSES = ("unchanged", "changed", "resync")


class Checker(Protocol):
    """What this needs of its link."""

    def checked(self, read: Callable[[], T]) -> T: ...


class RemoteWatch:
    """A tree that is followed."""

    def __init__(self, link: Checker, transfer: Transfer) -> None:
        self._link = link
        self._transfer = transfer
        self.reason = ""

    async def __aiter__(self) -> AsyncIterator[list[WatchEvent]]:
        rest = b""
        async for piece in self._transfer:
            *lines, rest = (rest + piece).split(b"\n")
            yield self._link.checked(lambda lines=lines, rest=rest: _events(lines, rest))  # type: ignore[misc]
        body = await self._transfer.result()
        self.reason = str(body.get("reason"))[:100]

    async def close(self) -> None:
        """Ends it."""
        await self._transfer.close()


def _events(lines: list[bytes], rest: bytes) -> list[WatchEvent]:
    if len(rest) > _MOST_LINE:
        raise FrameError("events without lines")
    return [_event(framing.read_control(line)) for line in lines]


def _event(body: dict[str, Any]) -> WatchEvent:
    kind, is_directory, at = body.get("kind"), body.get("dir"), body.get("at")
    if type(kind) is not str or kind not in WATCH_KINDS or type(is_directory) is not bool:
        raise FrameError("an event of no kind")
    if type(at) is not int or not 0 <= at < 1 << 53:
        raise FrameError("an event at no time")
    return WatchEvent(kind, path_in(body.get("path")), is_directory, at)


def words(options: WatchOptions) -> dict[str, Any]:
    """The guest's words for what is watched."""
    include, exclude = options.include, options.exclude
    return {
        "recursive": options.recursive,
        "include": None if include is None else list(include),
        "exclude": None if exclude is None else list(exclude),
        "user": options.user,
    }


def report(body: dict[str, Any]) -> ChangeReport:
    """An answer about changes."""
    status, version, paths, reason = (body.get(name) for name in ("status", "version", "paths", "reason"))
    if status not in _STATUSES or type(version) is not str or len(version) > 100 or not version.isascii():
        raise FrameError("a report of no status or version")
    if type(paths) is not list or len(paths) > _MOST_TOLD or (reason is not None and type(reason) is not str):
        raise FrameError("a report of too many paths")
    told = None if reason is None else reason[:100]
    return ChangeReport(status, version, tuple(path_in(path) for path in paths), told)
