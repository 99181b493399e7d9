"""Owns cutting a stream of bytes between characters, never inside one; no I/O.

Called by whoever sends output as text. Invariant: the pieces joined are the bytes that came; a piece ends inside a
UTF-8 character only where `rest` says that no more will come.
"""

from __future__ import annotations

_LONGEST = 4


class Characters:
    """One stream's pieces, with up to three bytes held back."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""

    def take(self, data: bytes) -> bytes:
        """What can be decoded by itself now; the beginning of a character waits for its end."""
        whole = self._held + data if self._held else data
        cut = len(whole) - _unfinished(whole)
        self._held = whole[cut:]
        return whole[:cut] if self._held else whole

    @property
    def holds(self) -> bool:
        """A character has begun and not ended."""
        return bool(self._held)

    def rest(self) -> bytes:
        """What is held back; the stream is over."""
        held, self._held = self._held, b""
        return held


def _unfinished(data: bytes) -> int:
    """Bytes at the end that begin a character which is not whole yet."""
    for back in range(1, min(_LONGEST, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        wanted = 4 if 0xF0 <= byte <= 0xF4 else 3 if byte & 0xF0 == 0xE0 else 2 if 0xC2 <= byte <= 0xDF else 1
        return back if wanted > back else 0
    return 0
