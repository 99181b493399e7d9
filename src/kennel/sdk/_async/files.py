"""Owns what a program does with a sandbox's files: read, write, list, move, watch; whole trees as archives.

Part of the sandbox's handle. Invariant: bytes of any number stream in pieces; a write that did not end well left the
old file; nothing here is repeated by itself once it may have changed something.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any, BinaryIO, TypeVar

from kennel.sdk._async.following import AsyncFollowing
from kennel.sdk._async.reply import AsyncReply
from kennel.sdk._async.transport import AsyncTransport, Headers
from kennel.sdk.answers import decoded
from kennel.sdk.file_records import (
    PIECE,
    Changes,
    FileChanged,
    FileContent,
    FileInfo,
    ListingEnd,
    Path,
    WatchEvent,
    WatchStart,
    given,
    named,
    octal,
    route_of,
)
from kennel.sdk.messages import Lines, Message
from kennel.wire.errors import KennelError, error, from_wire

T = TypeVar("T")
Content = str | bytes | BinaryIO | Iterable[bytes] | AsyncIterable[bytes]
LINES = "application/x-ndjson"


async def pieces(content: Any) -> AsyncIterator[bytes]:
    """A content in pieces: a file is read, an iterable iterated."""
    if hasattr(content, "read"):
        while piece := content.read(PIECE):
            yield piece
    elif hasattr(content, "__aiter__"):
        async for piece in content:
            yield piece
    else:
        for piece in content:
            yield piece


class AsyncFileStream:
    """A file, or an archive, on its way here: iterate it, or `read` all of it; a `with` block or `close` lets go of it.

    `size` is what will come, None when the server does not know; `mime_type` and `etag` are the file's.
    """

    def __init__(self, reply: AsyncReply) -> None:
        self._reply = reply
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reply.headers}
        length = headers.get("content-length", "")
        self.size = int(length) if length.isdigit() else None
        self.mime_type = headers.get("content-type", "")
        self.etag = headers.get("etag", "")

    def __aiter__(self) -> AsyncFileStream:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._reply.read()
        if piece is None:
            await self.close()
            raise StopAsyncIteration
        return piece

    async def read(self) -> bytes:
        """All that is left."""
        found = []
        async for piece in self:
            found.append(piece)
        return b"".join(found)

    async def close(self) -> None:
        """Gives the connection back."""
        await self._reply.close()

    async def __aenter__(self) -> AsyncFileStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncFileMethods:
    """The part of a sandbox's handle that is about files. Relative paths begin in /workspace.

    `user` is whose rights count inside; root's without it.
    """

    _transport: AsyncTransport
    _route: str

    async def write_file(
        self,
        path: Path,
        content: Content,
        *,
        mode: int | str | None = None,
        exclusive: bool = False,
        user: str | None = None,
    ) -> FileInfo:
        """Replaces a file, whole or not at all, making directories that are missing; the old mode and owner stay.

        `content` is text, bytes, an open binary file or an iterable of bytes; only the first two are in memory.
        """
        query = given(mode=octal(mode), exclusive=exclusive, user=user)
        body: Any = content.encode() if isinstance(content, str) else content
        if not isinstance(body, bytes):
            body = pieces(body)
        raw = await self._transport.send("PUT", f"{self._route}/files/{route_of(path)}", body, query=query)
        return decoded(raw, FileInfo)

    async def read_file(self, path: Path, *, encoding: str = "auto", user: str | None = None) -> FileContent:
        """A whole file of at most 32 MiB: text when it is text, else base64 (`.data` is bytes either way).

        `encoding` "utf8" or "base64" decides instead. FILE_TOO_LARGE beyond: use `read_file_stream`.
        """
        query = given(encoding={"utf-8": "utf8"}.get(encoding, encoding), user=user)
        return await self._get(path, FileContent, query)

    async def read_bytes(self, path: Path, *, user: str | None = None) -> bytes:
        """A whole file's bytes, of any size that fits this process."""
        return await (await self.read_file_stream(path, user=user)).read()

    async def read_file_stream(
        self, path: Path, *, start: int | None = None, count: int | None = None, user: str | None = None
    ) -> AsyncFileStream:
        """A file in pieces; with `start` (below 0 from the end) and `count` a part. Raises when it is not there."""
        headers: Headers = {}
        if start is not None or count is not None:
            headers["Range"] = _range(start or 0, count)
        return await self._stream(f"{self._route}/files/{route_of(path)}", given(user=user), headers)

    async def _stream(self, route: str, query: dict[str, str], headers: Headers) -> AsyncFileStream:
        silence = self._transport.timeout
        reply = await self._transport.open(route, accept="*/*", query=query, headers=headers, silence=silence)
        return AsyncFileStream(reply)

    async def stat(self, path: Path, *, follow: bool = True, user: str | None = None) -> FileInfo:
        """What is there; with `follow=False` a symbolic link itself."""
        return await self._get(path, FileInfo, {**given(user=user), "stat": "1" if follow else "lstat"})

    async def exists(self, path: Path, *, user: str | None = None) -> bool:
        """Whether anything is there; a link that points nowhere does not count."""
        try:
            await self.stat(path, user=user)
        except KennelError as failure:
            if failure.code not in ("FILE_NOT_FOUND", "NOT_DIRECTORY"):
                raise
            return False
        return True

    async def _get(self, path: Path, shape: type[T], query: dict[str, str]) -> T:
        route = f"{self._route}/files/{route_of(path)}"
        return await self._transport.call("GET", route, shape, query=query, repeat=True)

    async def list_files(
        self,
        path: Path = "/workspace",
        *,
        recursive: bool = False,
        include_hidden: bool = False,
        user: str | None = None,
    ) -> list[FileInfo]:
        """What a directory holds, by path; with `recursive` also what is below it. See `iter_files` for very many."""
        found = []
        async for entry in self.iter_files(path, recursive=recursive, include_hidden=include_hidden, user=user):
            found.append(entry)
        return sorted(found, key=lambda entry: entry.path_bytes)

    async def iter_files(
        self,
        path: Path = "/workspace",
        *,
        recursive: bool = False,
        include_hidden: bool = False,
        user: str | None = None,
    ) -> AsyncIterator[FileInfo]:
        """The same one by one, in no order, however many there are."""
        query = {"list": "1", **given(recursive=recursive, hidden=include_hidden, user=user)}
        route = f"{self._route}/files/{route_of(path)}"
        silence = self._transport.timeout
        reply = await self._transport.open(route, accept=LINES, query=query, headers={}, silence=silence)
        lines, ended = Lines(), False
        try:
            while (piece := await reply.read()) is not None:
                for line in lines.feed(piece):
                    if line.startswith(b'{"end"'):
                        ended = decoded(line, ListingEnd).end
                    else:
                        yield decoded(line, FileInfo)
        finally:
            await reply.close()
        if not ended:
            raise error("CONNECTION_LOST", "the listing was cut off", admitted="yes")

    async def delete_file(self, path: Path, *, recursive: bool = False, user: str | None = None) -> None:
        """Removes a file or a link; a directory only with `recursive`, and then all below it."""
        query = given(recursive=recursive, user=user)
        await self._transport.call("DELETE", f"{self._route}/files/{route_of(path)}", type(None), query=query)

    async def mkdir(
        self, path: Path, *, recursive: bool = False, mode: int | str | None = None, user: str | None = None
    ) -> FileInfo:
        """Makes a directory; with `recursive` its parents too, and one that is there is fine."""
        return await self._alter("mkdir", path, recursive=recursive, mode=octal(mode), user=user)

    async def rename_file(self, path: Path, new_path: Path, *, overwrite: bool = True) -> FileInfo:
        """Gives a file or directory exactly this new path."""
        return await self._alter("move", path, **named("to", new_path), overwrite=overwrite)

    async def move_file(self, path: Path, new_path: Path, *, overwrite: bool = True) -> FileInfo:
        """Moves a file or directory; into `new_path` when that is a directory, as `mv` does."""
        return await self._alter("move", path, **named("to", new_path), overwrite=overwrite, into=True)

    async def copy_file(
        self, path: Path, new_path: Path, *, recursive: bool = False, overwrite: bool = True, user: str | None = None
    ) -> FileInfo:
        """Copies with mode and times; a directory only with `recursive`, links as links."""
        return await self._alter(
            "copy", path, **named("to", new_path), recursive=recursive, overwrite=overwrite, into=True, user=user
        )

    async def chmod(self, path: Path, mode: int | str, *, user: str | None = None) -> FileInfo:
        """Sets permission bits: 0o755 or "755"."""
        return await self._alter("chmod", path, mode=octal(mode), user=user)

    async def symlink(self, path: Path, target: str, *, user: str | None = None) -> FileInfo:
        """Makes a symbolic link at `path` that says `target`."""
        return await self._alter("link", path, target=target, user=user)

    async def _alter(self, verb: str, path: Path, **fields: Any) -> FileInfo:
        body = {**named("path", path), **{name: value for name, value in fields.items() if value is not None}}
        answer = await self._transport.call("POST", f"{self._route}/files:{verb}", FileChanged, body=body)
        if answer.file is None:
            raise error("PROTOCOL_VIOLATION", "the server did not say what became of it", admitted="yes")
        return answer.file

    async def upload_file(self, local: str | os.PathLike[str], path: Path, *, user: str | None = None) -> FileInfo:
        """Copies a file of this machine into the sandbox, with its permission bits."""
        with open(local, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            return await self.write_file(path, file, mode=mode, user=user)

    async def download_file(self, path: Path, local: str | os.PathLike[str], *, user: str | None = None) -> int:
        """Copies a file of the sandbox here, beside its place first; the bytes it has."""
        partial = f"{os.fspath(local)}.part"
        count = 0
        stream = await self.read_file_stream(path, user=user)
        try:
            with open(partial, "wb") as file:
                async for piece in stream:
                    count += file.write(piece)
            os.replace(partial, local)
        except BaseException:
            if os.path.exists(partial):
                os.unlink(partial)
            raise
        finally:
            await stream.close()
        return count

    async def archive(self, path: Path, *, gzip: bool = False, user: str | None = None) -> AsyncFileStream:
        """A directory as tar in pieces, names relative to it; a file as an archive of one."""
        return await self._stream(f"{self._route}/archive/{route_of(path)}", given(gzip=gzip, user=user), {})

    async def extract(self, path: Path, content: Content, *, user: str | None = None) -> None:
        """Unpacks a tar (plain, gzip, bzip2 or xz) into a directory, which is made if it is missing."""
        body = content if isinstance(content, bytes) else pieces(content)
        await self._transport.send("PUT", f"{self._route}/archive/{route_of(path)}", body, query=given(user=user))

    async def watch(
        self,
        path: Path = "/workspace",
        *,
        recursive: bool = True,
        include: Iterable[str] | None = None,
        exclude: Iterable[str] | None = None,
    ) -> AsyncFollowing[WatchEvent]:
        """An iterator over what happens below a directory, in place when this returns; end it with `close`.

        Patterns know `*`, `**` and `?`; `exclude` is .git, node_modules and .DS_Store unless you say. An event
        `overflow` says that some were lost.
        """
        query = {**named("path", path), **given(recursive="true" if recursive else "false")}
        for name, patterns in (("include", include), ("exclude", exclude)):
            if patterns is not None:
                query[name] = ",".join(patterns)
        following = AsyncFollowing(self._transport, f"{self._route}/watch", query, _Watched(), resume=False)
        return await following.open()

    async def check_changes(self, path: Path = "/workspace", *, since: str | None = None) -> Changes:
        """The paths below a directory that changed since a `version` that this returned before."""
        query = {**named("path", path), **given(since=since)}
        return await self._transport.call("GET", f"{self._route}/changes", Changes, query=query)


class _Watched:
    """The events in the messages of a watch; a second beginning, after a lost connection, is an overflow too."""

    def __init__(self) -> None:
        self._begun = False

    def __call__(self, message: Message) -> WatchEvent | None:
        if message.event == "event":
            return decoded(message.data, WatchEvent)
        if message.event == "error":
            raise from_wire(500, decoded(message.data, dict[str, Any]))
        if message.event == "stopped":
            raise error("WATCH_NOT_FOUND", "the directory that was watched is gone", admitted="yes")
        if message.event != "watching" or not self._begun:
            self._begun = True
            return None
        return WatchEvent(event_type="overflow", path=decoded(message.data, WatchStart).path, is_directory=True)


def _range(start: int, count: int | None) -> str:
    if start < 0 and count is None:
        return f"bytes={start}"
    if start < 0 or (count is not None and count < 1):
        raise error("VALIDATION_FAILED", "a part begins at 0 or later, or at its end has no count", admitted="no")
    return f"bytes={start}-" if count is None else f"bytes={start}-{start + count - 1}"
