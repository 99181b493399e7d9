"""What services need from the store of layers and exports; `adapters/blobs` provides it over a folder and over S3.

Invariant: a blob is written once and whole or not at all, never changes, and is durable when `put` returns; bytes
travel compressed and come back as they were; no call holds more than a few dozen megabytes, whatever the blob's size.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol

import msgspec

Moved = Callable[[int], None]


class BlobInfo(msgspec.Struct, rename="camel", frozen=True):
    """One stored blob: `size` is what it takes in the store, compressed, in bytes; `modified` in seconds since 1970."""

    name: str
    size: int
    modified: float


class Blobs(Protocol):
    """Blobs by name: 1 to 200 of `a-z 0-9 . _ - /`, no empty, `.` or `..` element.

    Every call refuses with BLOBS_UNAVAILABLE when the store does not answer, NO_SPACE when it is full.
    """

    async def put(self, name: str, source: int, moved: Moved | None = None) -> bool:
        """Stores what the open file `source` holds, from its start (also a pipe: to its end); False if it was there.

        `moved` is called with the bytes of each piece that was read, from any thread.
        The caller keeps the descriptor. A blob that is there is left as it is: names are digests or made to be unique.
        """
        ...

    async def get(self, name: str, target: int, limit: int, moved: Moved | None = None) -> int:
        """Writes the blob to the open file or pipe `target`; its bytes. BLOB_NOT_FOUND, BLOB_CORRUPT.

        More than `limit` bytes are BLOB_CORRUPT: a small blob can claim to be vast.
        """
        ...

    async def exists(self, name: str) -> bool: ...

    async def delete(self, name: str) -> None:
        """Deletes the blob; one that is not there is no error."""
        ...

    def squeezed(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """What arrives in `pieces`, compressed as blobs are, in larger ones; nothing is stored."""
        ...

    def unsqueezed(self, pieces: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
        """The other way, in small pieces; damaged, or more than `limit` bytes: BLOB_CORRUPT."""
        ...

    def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """Every blob below the folder `prefix`, in no order."""
        ...
