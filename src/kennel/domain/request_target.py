"""Owns the form of a request's target: origin-form only, and the decoded, dot-resolved path that rules look at.

Called by the gateway for every request. Invariant: the bytes that go out are the ones that were judged; a path that
two servers could read differently is reported as ambiguous, and refused wherever a path rule exists.
"""

from __future__ import annotations

import re

import msgspec

MAX_TARGET = 8192
_ORIGIN_FORM = re.compile(r"/[!-~]*")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PERCENT = re.compile(r"%([0-9A-Fa-f]{2})")
# Encoded slash, backslash, NUL, and dot segments with parameters: upstreams disagree on every one of them.
_AMBIGUOUS = re.compile(r"%2f|%5c|%00|\\|//|/\.{1,2}[;%]|/%2e[^/]*;|;/\.\.|%25(?:2e|2f|5c|00)", re.IGNORECASE)


class Target(msgspec.Struct, frozen=True, gc=False):
    """A request's target as sent (`raw_path`, `raw_query`), and as rules see it (`path`).

    `ambiguous` says why the path could mean two things; rules that look at paths do not pass such a request.
    """

    raw_path: str
    raw_query: str | None
    path: str
    ambiguous: str | None

    @property
    def raw(self) -> str:
        return self.raw_path if self.raw_query is None else f"{self.raw_path}?{self.raw_query}"


def parse_target(raw: bytes) -> Target | str:
    """The target, or why it is none: too long, absolute or authority form, a fragment, bytes outside ASCII."""
    if len(raw) > MAX_TARGET:
        return f"the target is longer than {MAX_TARGET} bytes"
    text = raw.decode("latin-1")
    if not _ORIGIN_FORM.fullmatch(text):
        return "the target must be a path that starts with '/': no absolute form, no spaces, ASCII only"
    if "#" in text:
        return "a target holds no fragment"
    path, mark, query = text.partition("?")
    if "%" not in path and "/." not in path and "//" not in path and "\\" not in path:
        return Target(path, query if mark else None, path, None)
    resolved, why = _resolve(path)
    return Target(path, query if mark else None, resolved, why)


def _resolve(path: str) -> tuple[str, str | None]:
    why = None
    if _BAD_PERCENT.search(path):
        why = "a '%' without two hex digits"
    elif found := _AMBIGUOUS.search(path):
        why = f"it holds {found.group()!r}"
    octets = _PERCENT.sub(lambda m: chr(int(m.group(1), 16)), path).encode("latin-1")
    try:
        decoded = octets.decode("utf-8")
    except UnicodeDecodeError:
        decoded, why = octets.decode("latin-1"), why or "it is not UTF-8 when decoded"
    if any(ord(char) < 32 or ord(char) == 127 for char in decoded):
        why = why or "it holds a control character"
    resolved = _without_dots(decoded)
    if resolved != decoded:
        # Some servers resolve dot segments, some route by the path as it came.
        why = why or "it holds a dot segment"
    return resolved, why


def _without_dots(path: str) -> str:
    kept: list[str] = []
    segments = path.split("/")[1:]
    for index, segment in enumerate(segments):
        last = index == len(segments) - 1
        if segment == "..":
            if kept:
                kept.pop()
        elif segment != ".":
            kept.append(segment)
            continue
        if last:
            kept.append("")
    return "/" + "/".join(kept)
