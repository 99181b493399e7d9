"""Owns how blobs look on the way: one zstd frame with a checksum, read from and written to descriptors piece by piece.

Called by store. Invariant: work on a piece happens outside the event loop, and one piece is held at a time; a frame
that is cut off, damaged, followed by other bytes or larger than allowed is BLOB_CORRUPT.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable

import zstandard

from kennel.ports.blobs import Moved
from kennel.wire.errors import error

PIECE = 1 << 20
_LEVEL = 3
"""336 MiB/s on one core at a ratio of 3.7; what is stored is written once and read rarely."""
_MAX_WINDOW = 8 << 20


async def compressed(source: int, moved: Moved | None = None) -> AsyncIterator[bytes]:
    """The open file or pipe `source` as a frame, in pieces of about PIECE bytes."""
    squeeze = _frame()
    read = _counted(_reader(source), moved)
    held: list[bytes] = []
    while True:
        piece, last = await asyncio.to_thread(_squeeze, squeeze, read)
        held.append(piece)
        if last or sum(map(len, held)) >= PIECE:
            yield b"".join(held)
            held.clear()
        if last:
            return


async def squeezed(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What arrives in small pieces as a frame, in pieces of about PIECE bytes; without its end if they fail."""
    squeeze, held = _frame(), [b""]
    async for piece in pieces:
        held.append(await asyncio.to_thread(squeeze.compress, piece))
        if sum(map(len, held)) >= PIECE:
            yield b"".join(held)
            held.clear()
    yield b"".join([*held, squeeze.flush()])


def _frame() -> zstandard.ZstdCompressionObj:
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compressobj()


def _squeeze(squeeze: zstandard.ZstdCompressionObj, read: Callable[[], bytes]) -> tuple[bytes, bool]:
    data = read()
    return (squeeze.compress(data), False) if data else (squeeze.flush(), True)


def _counted(read: Callable[[], bytes], moved: Moved | None) -> Callable[[], bytes]:
    if moved is None:
        return read

    def counted() -> bytes:
        data = read()
        moved(len(data))
        return data

    return counted


def _reader(source: int) -> Callable[[], bytes]:
    """Reads on from the start of a file without moving its position, which others may share; a pipe as it comes."""
    position = 0
    seekable = True
    try:
        os.lseek(source, 0, os.SEEK_CUR)
    except OSError:
        seekable = False

    def read() -> bytes:
        nonlocal position
        if not seekable:
            return os.read(source, PIECE)
        data = os.pread(source, PIECE, position)
        position += len(data)
        return data

    return read


class Unpacked:
    """Takes a frame piece by piece and writes what is in it to the open file or pipe `target`."""

    def __init__(self, name: str, target: int, limit: int, moved: Moved | None = None) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()
        self._name, self._target, self._limit, self._moved = name, target, limit, moved
        self.bytes = 0

    async def take(self, piece: bytes) -> None:
        await asyncio.to_thread(self._take, piece)

    def _take(self, piece: bytes) -> None:
        # In small steps: a piece may unpack to a thousand times its size.
        for at in range(0, len(piece), 4096):
            if self._frame.eof:
                raise self._corrupt("bytes follow its end")
            try:
                data = self._frame.decompress(piece[at : at + 4096])
            except zstandard.ZstdError as failure:
                raise self._corrupt(str(failure)) from failure
            self.bytes += len(data)
            if self.bytes > self._limit:
                raise self._corrupt(f"it holds more than {self._limit} bytes")
            write_all(self._target, data)
            if self._moved is not None:
                self._moved(len(data))

    def end(self) -> int:
        """The bytes written; refuses a frame that is not complete."""
        if not self._frame.eof or self._frame.unused_data:
            raise self._corrupt("it does not end as it should")
        return self.bytes

    def _corrupt(self, why: str) -> Exception:
        return error("BLOB_CORRUPT", f"blob {self._name} is damaged: {why}")


async def unpacked(pieces: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    """What is in a frame that arrives in `pieces`, in small pieces of its own; BLOB_CORRUPT as for blobs."""
    frame = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()
    total = 0
    async for piece in pieces:
        # In small steps: a piece may unpack to a thousand times its size.
        for at in range(0, len(piece), 4096):
            if frame.eof:
                raise error("BLOB_CORRUPT", "the archive has bytes behind its end")
            try:
                data = await asyncio.to_thread(frame.decompress, piece[at : at + 4096])
            except zstandard.ZstdError as failure:
                raise error("BLOB_CORRUPT", f"the archive is damaged: {failure}") from failure
            total += len(data)
            if total > limit:
                raise error("BLOB_CORRUPT", f"the archive holds more than {limit} bytes")
            if data:
                yield data
    if not frame.eof or frame.unused_data:
        raise error("BLOB_CORRUPT", "the archive does not end as it should")


def write_all(descriptor: int, data: bytes) -> None:
    """Writes everything; a full disk is NO_SPACE."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as failure:
        if failure.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise error("NO_SPACE", "no space is left for what is fetched") from failure
        raise
