"""Owns a pipe into a program: bytes in order, credit back as the program reads them.

Made by exec and session. Invariant: it never blocks, holds at most one window of bytes, and a program that does not
read its input never stops its own output.
"""

from __future__ import annotations

import os

from .loop import WRITE, Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Source:
    """The write end of a pipe; without one (`fd` -1) bytes are taken and dropped.

    `consumed` hears of each piece that has left memory. While `held` the reader has not opened its end yet, and the end
    of input waits for it.
    """

    __slots__ = ("_at", "_consumed", "_ending", "_fd", "_held", "_loop", "_queue", "_watched")

    def __init__(self, loop: Loop, fd: int, consumed: Callable[[int], None], held: bool = False) -> None:
        self._loop = loop
        self._fd = fd
        self._consumed = consumed
        self._queue: list[bytes] = []
        self._at = 0
        self._ending = False
        self._watched = False
        self._held = held
        if fd >= 0:
            os.set_blocking(fd, False)

    def data(self, payload: bytes) -> None:
        """More bytes."""
        if self._fd < 0 or self._ending:
            self._consumed(len(payload))
        else:
            self._queue.append(payload)
            if not self._watched:
                self._write()

    def eof(self) -> None:
        """No more bytes; the program sees the end once it has read the rest."""
        self._ending = True
        if not self._queue:
            self._release()

    def unhold(self) -> None:
        """The reader has opened its end: from now on closing ours means the end."""
        self._held = False
        if self._ending and not self._queue:
            self.close()

    def _release(self) -> None:
        if not self._held:
            self.close()

    def _write(self, events: int = 0) -> None:
        try:
            while self._queue:
                piece = self._queue[0]
                self._at += os.write(self._fd, memoryview(piece)[self._at :] if self._at else piece)
                if self._at == len(piece):
                    self._at = 0
                    del self._queue[0]
                    self._consumed(len(piece))
        except BlockingIOError:
            if not self._watched:
                self._watched = True
                self._loop.watch(self._fd, WRITE, self._write)
            return
        except OSError:
            self.close()  # nobody reads it any more
            return
        if self._watched:
            self._watched = False
            self._loop.forget(self._fd)
        if self._ending:
            self._release()

    def close(self) -> None:
        """Closes the pipe and drops what was not read."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        self._watched = False
        self._loop.close(fd)
        for piece in self._queue:
            self._consumed(len(piece))
        self._queue.clear()
