"""Owns looking for a line in output that comes in pieces: one that holds a text, or one that a pattern is found in.

Made by waiting. Invariant: how the output was cut into pieces changes nothing; of a line without an end at most WINDOW
bytes are held; the work is linear in what is written, whatever the pattern.
"""

from __future__ import annotations

from _codecs import utf_8_decode

from .pattern import Pattern
from .refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .pattern import Search

WINDOW = 64 * 1024
MOST_LINE = 4096
"""Characters of a line that are told."""


class LineWatch:
    """One stream's lines; `feed` and `end` return the first that fits."""

    __slots__ = ("_held", "_needle", "_search", "_undecoded", "taken")

    def __init__(self, text: str | None, pattern: str | None) -> None:
        if (text is None) is (pattern is None) or text == "" or pattern == "":
            raise Refusal("VALIDATION_FAILED", "a log is waited for by a text or a pattern")
        if text is not None and "\n" in text:
            raise Refusal("VALIDATION_FAILED", "the text must be part of one line")
        self._needle = None if text is None else text.encode("utf-8", "surrogateescape")
        self._search: Search | None = None if pattern is None else Pattern(pattern).search()
        self._held = bytearray()
        self._undecoded = b""
        self.taken = 0
        """Bytes of the last piece up to the end of what fitted."""

    def feed(self, data: bytes) -> str | None:
        """The first line that fits once `data` is there, as far as it is written."""
        if self._needle is not None:
            return self._feed_text(data, self._needle)
        at = 0
        while at < len(data):
            end = data.find(b"\n", at)
            part = data[at:] if end < 0 else data[at:end]
            if self._matches(part, end >= 0):
                self._hold(part)
                self.taken = len(data) if end < 0 else end + 1
                return self._line()
            if end < 0:
                self._hold(part)
                break
            self._held.clear()
            at = end + 1
        return None

    def _feed_text(self, data: bytes, needle: bytes) -> str | None:
        whole = bytes(self._held) + data
        # What was held was looked through before: only what reaches into the new bytes counts.
        at = whole.find(needle, max(0, len(self._held) - len(needle) + 1))
        if at < 0:
            newline = whole.rfind(b"\n")
            self._held = bytearray(whole[max(newline + 1, len(whole) - WINDOW) :])
            return None
        start = whole.rfind(b"\n", 0, at) + 1
        end = whole.find(b"\n", at)
        stop = len(whole) if end < 0 else end
        self.taken = min(len(data), (len(whole) if end < 0 else end + 1) - len(self._held))
        self._held = bytearray(whole[start:stop])
        return self._line()

    def end(self) -> str | None:
        """The last line, which had no end, if it fits only now."""
        if self._search is not None and self._held and self._search.end():
            return self._line()
        return None

    def _matches(self, part: bytes, whole: bool) -> bool:
        search = self._search
        assert search is not None
        text, used = utf_8_decode(self._undecoded + part, "replace", whole)
        self._undecoded = b"" if whole else (self._undecoded + part)[used:]
        found = search.feed(text.removesuffix("\r") if whole else text) or (whole and search.end())
        if whole and not found:
            search.reset()
        return found

    def _hold(self, part: bytes) -> None:
        self._held += part
        if len(self._held) > WINDOW:
            del self._held[: len(self._held) - WINDOW]

    def _line(self) -> str:
        return bytes(self._held).decode("utf-8", "replace").rstrip("\r")[:MOST_LINE]
