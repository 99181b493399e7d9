"""Owns blobs in an object store: a folder by default, S3 and what speaks its protocol by URL.

Called by assemble. Invariant: as ports/blobs.py says. A small blob is created conditionally; a large one becomes
visible with its last part (S3) or by a rename (folder), and two writers of one name write the same bytes.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore import exceptions
from obstore.store import LocalStore, ObjectStore, from_url

from kennel.adapters.blobs.transport import PIECE, Unpacked, compressed, squeezed, unpacked
from kennel.ports.blobs import BlobInfo, Moved
from kennel.steps import step
from kennel.wire.errors import KennelError, error

_SMALL = 4 * PIECE
_PART = 8 * PIECE
"""S3 takes at most 10,000 parts: 80 GB of one blob, compressed."""
_AT_ONCE = 2
_NAME = re.compile(r"(?:[a-z0-9._-]+/)*[a-z0-9._-]+")
_STAGED = re.compile(r".+#\d+")
# The library raises Python's own errors for what is not there or not allowed.
_FAILURES = (exceptions.BaseError, FileNotFoundError, PermissionError)
_FULL = ("os error 28", "No space left", "os error 122")

_CLIENT = {"connect_timeout": "5s", "timeout": "120s"}
_RETRY = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}


def open_blobs(where: str | Path, options: Mapping[str, Any] | None = None) -> ObjectBlobs:
    """Blobs in the folder `where`, or below the URL (`s3://bucket/prefix`) with obstore's options for it.

    An `endpoint` of `http://` is taken at its word: somebody wrote it there.
    """
    if isinstance(where, Path):
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sweep(where)
        return ObjectBlobs(LocalStore(where, mkdir=True), where)
    asked = dict(options or {})
    client = _CLIENT | {"allow_http": str(asked.get("endpoint", "")).startswith("http://")}
    words: dict[str, Any] = {"retry_config": _RETRY, "client_options": client, **asked}
    return ObjectBlobs(from_url(where, **words), None)


class ObjectBlobs:
    """The store; `folder` where it is one, for what must be synced to disk."""

    def __init__(self, store: ObjectStore, folder: Path | None) -> None:
        self._store, self._folder = store, folder

    async def put(self, name: str, source: int, moved: Moved | None = None) -> bool:
        """As `Blobs.put`."""
        if await self.exists(name):
            await self._settle(name)  # whoever put it may have died before this
            return False
        pieces = compressed(source, moved)
        try:
            with step("put blob"):
                fresh = await self._put(name, pieces)
            await self._settle(name)
        except _FAILURES as failure:
            raise _refusal(name, failure) from failure
        return fresh

    async def _put(self, name: str, pieces: AsyncIterator[bytes]) -> bool:
        first = [piece async for piece in _until(pieces, _SMALL)]
        if sum(map(len, first)) < _SMALL:
            try:
                await obstore.put_async(self._store, name, b"".join(first), mode="create", use_multipart=False)
            except (exceptions.AlreadyExistsError, FileExistsError):
                return False
        else:
            body = _joined(first, pieces)
            await obstore.put_async(
                self._store, name, body, use_multipart=True, chunk_size=_PART, max_concurrency=_AT_ONCE
            )
        return True

    def squeezed(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """As `Blobs.squeezed`."""
        return squeezed(pieces)

    def unsqueezed(self, pieces: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
        """As `Blobs.unsqueezed`."""
        return unpacked(pieces, limit)

    async def get(self, name: str, target: int, limit: int, moved: Moved | None = None) -> int:
        """As `Blobs.get`."""
        unpacked = Unpacked(_checked(name), target, limit, moved)
        try:
            found = await obstore.get_async(self._store, name)
            async for piece in found.stream(min_chunk_size=PIECE):
                await unpacked.take(bytes(piece))
        except _FAILURES as failure:
            raise _refusal(name, failure) from failure
        return unpacked.end()

    async def exists(self, name: str) -> bool:
        """As `Blobs.exists`."""
        try:
            await obstore.head_async(self._store, _checked(name))
        except (FileNotFoundError, exceptions.NotFoundError):
            return False
        except _FAILURES as failure:
            raise _refusal(name, failure) from failure
        return True

    async def delete(self, name: str) -> None:
        """As `Blobs.delete`."""
        try:
            with step("delete blob"):
                await obstore.delete_async(self._store, _checked(name))
        except (FileNotFoundError, exceptions.NotFoundError):
            return
        except _FAILURES as failure:
            raise _refusal(name, failure) from failure

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """As `Blobs.list`."""
        try:
            async for batch in obstore.list(self._store, _checked(prefix)):
                for row in batch:
                    yield BlobInfo(row["path"], row["size"], row["last_modified"].timestamp())
        except _FAILURES as failure:
            raise _refusal(prefix, failure) from failure

    async def _settle(self, name: str) -> None:
        """Makes a blob in a folder durable: the library renames it into place, but does not sync."""
        if self._folder is not None:
            with step("sync blob"):
                await asyncio.to_thread(_sync, self._folder, name)


async def _until(pieces: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    """The pieces up to the one that reaches `most` bytes."""
    total = 0
    async for piece in pieces:
        yield piece
        total += len(piece)
        if total >= most:
            return


async def _joined(first: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    while first:
        yield first.pop(0)
    async for piece in rest:
        yield piece


def _checked(name: str) -> str:
    parts = name.split("/")
    if len(name) > 200 or not _NAME.fullmatch(name) or "." in parts or ".." in parts:
        raise error("VALIDATION_FAILED", f"not a blob's name: {name[:200]!r}", admitted="no")
    return name


def _refusal(name: str, failure: Exception) -> KennelError:
    text = str(failure)
    if isinstance(failure, exceptions.NotFoundError | FileNotFoundError):
        return error("BLOB_NOT_FOUND", f"no blob {name}")
    if any(mark in text for mark in _FULL):
        return error("NO_SPACE", f"the store of layers is full ({name})")
    return error("BLOBS_UNAVAILABLE", f"the store of layers does not answer: {text.splitlines()[0][:300]}")


def _sync(folder: Path, name: str) -> None:
    path = folder / name
    for place in (path, *path.parents):
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if place == folder:
            return


def _sweep(folder: Path) -> None:
    """Deletes what a writer that died left half-written."""
    for path in folder.rglob("*#*"):
        if _STAGED.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)
