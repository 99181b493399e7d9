"""Owns how much one cell may say: bytes of text, bytes and number of results; what is beyond is counted, not kept.

Called by the contexts for every piece of output. Invariant: one cell makes at most TEXT + RESULTS bytes of lines,
however fast it prints and however slowly its caller reads.
"""

from __future__ import annotations

import json
from typing import Any

TEXT = 16 * 1024 * 1024
"""Bytes of standard output and error together, in UTF-8."""
RESULTS = 24 * 1024 * 1024
MOST_RESULTS = 1000
RESULT = 6 * 1024 * 1024
"""Bytes of one result as it travels; a client takes no message over 8 MiB."""
TRACEBACK, TRACEBACK_LINES = 256 * 1024, 400
PIECE = 32 * 1024
"""Characters of text in one line."""
_LINE_COST = 64
"""What a line costs beside its text: a program that prints single bytes is bounded as well."""


def encoded(event: dict[str, Any]) -> bytes:
    """One event as a line; half a character becomes a question mark."""
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


class Budget:
    """Of one cell."""

    def __init__(self) -> None:
        self._text = TEXT
        self._results = RESULTS
        self._count = MOST_RESULTS
        self.dropped = 0

    def text(self, stream: str, text: str) -> list[bytes]:
        """The lines of a piece of output."""
        lines = []
        for at in range(0, len(text), PIECE):
            piece = text[at : at + PIECE]
            size = len(piece.encode("utf-8", "replace"))
            if self._text < size:
                self.dropped += size
                continue
            self._text -= size + _LINE_COST
            lines.append(encoded({"event": stream, "text": piece}))
        return lines

    def result(self, event: dict[str, Any]) -> bytes:
        """A result's line; one that is too large is named by its formats and left out."""
        try:
            line = encoded(event)
        except (ValueError, RecursionError):
            line = bytes(RESULT + 1)  # nested too deeply to be told: as one that is too large
        if self._count > 0 and len(line) <= min(RESULT, self._results):
            self._count -= 1
            self._results -= len(line)
            return line
        self.dropped += len(line)
        if self._count <= 0:
            return b""
        self._count -= 1
        formats = [str(name)[:100] for name in list(event["data"])[:20]]
        return encoded({**event, "data": {}, "metadata": {}, "omitted": formats})


def shortened(traceback: list[str]) -> list[str]:
    """A traceback's lines within bounds: its beginning and its end."""
    if len(traceback) > TRACEBACK_LINES:
        half = TRACEBACK_LINES // 2
        traceback = [*traceback[:half], f"… {len(traceback) - 2 * half} more …", *traceback[-half:]]
    most = max(200, TRACEBACK // max(1, len(traceback)))
    return [line if len(line) <= most else line[:most] + " …" for line in traceback]
