"""Owns the last bytes that a program wrote, each with its position in all that it ever wrote.

Made by process and terminal. Invariant: at most `most` bytes of memory, the cost of small pieces included; a position
once given never changes, and what is gone is known to be gone.
"""

from __future__ import annotations

from _bisect import bisect_right

_PIECE = 16 * 1024
"""Bytes up to which what comes is added to the last piece."""
_COST = 192
"""Memory of a piece beside its bytes: output of one byte at a time, alternating, must not cost a hundredfold."""


class Ring:
    """Bytes of one or two kinds, oldest first."""

    __slots__ = ("_kinds", "_most", "_pieces", "_starts", "cost", "first", "last")

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: list[bytearray] = []
        self._kinds: list[int] = []
        self._starts: list[int] = []
        self.cost = 0
        self.first = 0
        self.last = 0

    def add(self, kind: int, data: bytes) -> None:
        """Takes what was written, and lets go of the oldest."""
        if self._pieces and self._kinds[-1] == kind and len(self._pieces[-1]) < _PIECE:
            self._pieces[-1] += data
            self.cost += len(data)
        else:
            self._pieces.append(bytearray(data))
            self._kinds.append(kind)
            self._starts.append(self.last)
            self.cost += len(data) + _COST
        self.last += len(data)
        if self.cost > self._most:
            self.shrink(self._most)

    def shrink(self, most: int) -> None:
        """Keeps at most that much memory."""
        gone = 0
        while self.cost > most and gone < len(self._pieces):
            piece = self._pieces[gone]
            over = self.cost - most
            if over < len(piece) and most:
                # Cut rather than dropped, and a little more than needed, so that not every byte moves the rest.
                cut = min(len(piece), over + _PIECE // 4)
                del piece[:cut]
                self._starts[gone] += cut
                self.cost -= cut
                if piece:
                    break
                self.cost -= _COST
            else:
                self.cost -= len(piece) + _COST
            gone += 1
        del self._pieces[:gone], self._kinds[:gone], self._starts[:gone]
        self.first = self._starts[0] if self._starts else self.last

    def read(self, at: int, most: int) -> tuple[int, bytes] | None:
        """Up to `most` bytes of one kind from position `at`, or the first one kept; None at the end."""
        at = max(at, self.first)
        if at >= self.last or most <= 0:
            return None
        index = bisect_right(self._starts, at) - 1
        piece, skip = self._pieces[index], at - self._starts[index]
        return self._kinds[index], bytes(piece[skip : skip + most])
