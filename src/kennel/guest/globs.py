"""Owns patterns of paths: `*` and `?` within one component, `**` over any number of them.

Called by tree_watch. Invariant: matching takes time in proportion to pattern times name, whatever both are: no pattern
makes the guest's only thread busy.
"""

from __future__ import annotations

from .refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST = 512
_LONGEST = 1024


class Globs:
    """Several patterns; one without a slash is about any component's name, others about the whole relative path."""

    def __init__(self, patterns: list[str]) -> None:
        self._names = [p.encode("utf-8", "surrogateescape") for p in patterns if "/" not in p.strip("/")]
        self._paths = [_split(p) for p in patterns if "/" in p.strip("/")]

    def match(self, path: bytes) -> bool:
        """Whether a pattern is about this relative path, or about a directory it lies in."""
        parts = path.split(b"/")
        if any(matches(name.strip(b"/"), part) for name in self._names for part in parts):
            return True
        return any(_below(pattern, parts) for pattern in self._paths)


def globs_of(args: dict[str, Any], name: str, default: list[str]) -> Globs:
    """A list of patterns among the arguments."""
    value = args.get(name)
    if value is None:
        return Globs(default)
    if type(value) is not list or len(value) > _MOST:
        raise Refusal("VALIDATION_FAILED", f"{name} must be a list of at most {_MOST} patterns")
    for pattern in value:
        if type(pattern) is not str or not pattern.strip("/") or len(pattern) > _LONGEST:
            raise Refusal("VALIDATION_FAILED", f"a pattern has 1 to {_LONGEST} characters")
    return Globs(value)


def matches(pattern: bytes, name: bytes) -> bool:
    """One component against a pattern of `*` and `?`; the last star is the only one that is ever tried again."""
    at = put = 0
    star, mark = -1, 0
    while put < len(name):
        if at < len(pattern) and pattern[at : at + 1] == b"*":
            star, mark = at, put
            at += 1
        elif at < len(pattern) and pattern[at : at + 1] in (b"?", name[put : put + 1]):
            at, put = at + 1, put + 1
        elif star >= 0:
            mark += 1
            at, put = star + 1, mark
        else:
            return False
    return not pattern[at:].strip(b"*")


def _below(pattern: list[bytes], parts: list[bytes]) -> bool:
    """Whether the pattern matches the path or one of its directories: states of the pattern, advanced together."""
    states = _closed({0}, pattern)
    for part in parts:
        if len(pattern) in states:
            return True
        after = set()
        for at in states:
            if at < len(pattern):
                if pattern[at] == b"**":
                    after.add(at)
                elif matches(pattern[at], part):
                    after.add(at + 1)
        states = _closed(after, pattern)
    return len(pattern) in states


def _closed(states: set[int], pattern: list[bytes]) -> set[int]:
    """The states, and those behind a `**` that stands for nothing."""
    found = set(states)
    for at in states:
        if at < len(pattern) and pattern[at] == b"**":
            found.add(at + 1)
    return found


def _split(pattern: str) -> list[bytes]:
    """The components of a pattern; a `**` behind another says nothing more."""
    parts = pattern.strip("/").encode("utf-8", "surrogateescape").split(b"/")
    return [part for at, part in enumerate(parts) if part != b"**" or at == 0 or parts[at - 1] != b"**"]
