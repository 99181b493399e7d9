"""Owns `kennel cp`: files and trees between this machine and sandboxes, or between two sandboxes.

Called by `__main__`. Invariant: what a sandbox sends lands below the destination and nowhere else; a tree is never in
memory, here or there.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from kennel.cli.flags import DEFAULTS, Flags, misuse
from kennel.cli.output import printable, show_json, warn
from kennel.wire.errors import KennelError, error

if TYPE_CHECKING:
    from kennel import Kennel, Sandbox

_REMOTE = re.compile(r"((?:/sandboxes/)?[a-z0-9][a-z0-9.-]*):(.*)", re.S)
_PIECE = 256 * 1024
_BLINK = 0.2
"""Seconds between two looks of the progress line."""


class Progress:
    """A line on the terminal that says how far it is; nothing where stderr is no terminal."""

    def __init__(self, label: str) -> None:
        self._label = printable(label)[-40:]
        self._shown = sys.stderr.isatty()
        self._began = self._last = time.monotonic()
        self.count = 0

    def watch(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The pieces, counted as they pass."""
        for piece in pieces:
            yield piece
            self.count += len(piece)
            now = time.monotonic()
            if self._shown and now - self._last > _BLINK:
                self._last = now
                self._show(now)

    def _show(self, now: float) -> None:
        speed = self.count / max(now - self._began, 0.001) / 1e6
        sys.stderr.write(f"\r\x1b[K{self._label}  {self.count / 1e6:.1f} MB  {speed:.0f} MB/s")
        sys.stderr.flush()

    def end(self) -> None:
        """Takes the line away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")


class Side:
    """One end of a copy: a path here (`box` None, `-` for a pipe) or in a sandbox."""

    def __init__(self, word: str, itx: Kennel) -> None:
        match = _REMOTE.fullmatch(word)
        self.box: Sandbox | None = None
        self.path = word
        if match is not None:
            self.box = itx.sandboxes.get(match[1])
            self.path = match[2] or "/workspace"

    @property
    def name(self) -> str:
        """What it is called by itself."""
        return os.path.basename(self.path.rstrip("/"))

    def is_directory(self) -> bool:
        """Whether a directory is there now."""
        if self.box is None:
            return os.path.isdir(self.path)
        try:
            return self.box.stat(self.path).is_directory
        except KennelError as failure:
            if failure.code not in ("FILE_NOT_FOUND", "NOT_DIRECTORY"):
                raise
            return False

    def into(self, name: str) -> str:
        """Where something called `name` goes: into a directory that is there, as `cp` does."""
        if self.path == "-":
            return self.path
        if self.path.endswith("/") or self.is_directory():
            return os.path.join(self.path, name)
        return self.path


def copy(
    source: Annotated[
        str, Parameter(help="A path here, NAME:/path in a sandbox, or - for stdin.", allow_leading_hyphen=True)
    ],
    target: Annotated[str, Parameter(help="The same; - is stdout.", allow_leading_hyphen=True)],
    /,
    *,
    user: Annotated[str | None, Parameter(help="Whose rights count in the sandbox; root's without it.")] = None,
    flags: Flags = DEFAULTS,
) -> None:
    """Copy files and directories: kennel cp SRC DST, either of them NAME:/path.

    Paths of a sandbox that are not absolute begin in /workspace. A directory goes with all below it. A path here that
    looks like NAME:/path is written ./NAME:/path.
    """
    with flags.client() as itx:
        one, other = Side(source, itx), Side(target, itx)
        if one.box is None and other.box is None:
            raise misuse("one of the two is in a sandbox", hint="kennel cp file.txt NAME:/workspace/")
        tree = one.path != "-" and one.is_directory()
        told = (_tree if tree else _file)(one, other, user)
    if flags.json:
        show_json(told)


def _file(one: Side, other: Side, user: str | None) -> dict[str, Any]:
    place = other.into(one.name)
    progress = Progress(one.path)
    try:
        with _reading(one, user) as (pieces, mode):
            counted = progress.watch(pieces)
            if other.box is not None:
                other.box.write_file(place, counted, mode=mode, user=user)
            else:
                write_here(place, counted)
    finally:
        progress.end()
    return {"path": place, "bytes": progress.count}


class _reading:
    """The pieces of a file, and its permission bits when it is one of this machine."""

    def __init__(self, side: Side, user: str | None) -> None:
        self._side = side
        self._user = user
        self._open: Any = None

    def __enter__(self) -> tuple[Iterable[bytes], int | None]:
        if self._side.box is not None:
            self._open = self._side.box.read_file_stream(self._side.path, user=self._user)
            return self._open, None
        if self._side.path == "-":
            return iter(lambda: os.read(sys.stdin.fileno(), _PIECE), b""), None
        self._open = file = open(self._side.path, "rb")
        return iter(lambda: file.read(_PIECE), b""), os.fstat(file.fileno()).st_mode & 0o777

    def __exit__(self, *_: object) -> None:
        if self._open is not None:
            self._open.close()


def write_here(place: str, pieces: Iterable[bytes]) -> None:
    """Writes a file of this machine, whole or not at all; `-` is stdout."""
    if place == "-":
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        return
    partial = f"{place}.part"
    try:
        with open(partial, "wb") as file:
            for piece in pieces:
                file.write(piece)
        os.replace(partial, place)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise


def _tree(one: Side, other: Side, user: str | None) -> dict[str, Any]:
    if other.path == "-":
        raise misuse("a directory does not go to stdout", hint="tar it: kennel exec NAME -- tar -c …")
    place = other.into(one.name)
    progress = Progress(one.path)
    try:
        if one.box is None:
            assert other.box is not None
            with Packed(one.path) as pieces:
                other.box.extract(place, progress.watch(pieces), user=user)
        else:
            with one.box.archive(one.path, user=user) as stream:
                if other.box is not None:
                    other.box.extract(place, progress.watch(stream), user=user)
                else:
                    unpack(place, progress.watch(stream))
    finally:
        progress.end()
    return {"path": place, "bytes": progress.count}


class Packed:
    """A directory of this machine as tar, made by a thread and read from a pipe, so that only a pipe of it is held."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._read, self._write = os.pipe()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._pack, name="kennel-pack", daemon=True)

    def _pack(self) -> None:
        import tarfile

        try:
            with open(self._write, "wb") as end, tarfile.open(fileobj=end, mode="w|", bufsize=_PIECE) as tar:
                tar.add(self._path, arcname=".")
        except BrokenPipeError:
            return  # nobody reads it any more
        except (OSError, tarfile.TarError) as failure:
            self._failure = failure

    def __enter__(self) -> Iterator[bytes]:
        self._thread.start()
        return self._pieces()

    def _pieces(self) -> Iterator[bytes]:
        while piece := os.read(self._read, _PIECE):
            yield piece
        self._thread.join()
        if self._failure is not None:
            raise error("FILESYSTEM_ERROR", f"{self._path} could not be packed: {self._failure}", admitted="unknown")

    def __exit__(self, *_: object) -> None:
        os.close(self._read)
        self._thread.join()


class _Reader:
    """An iterator of bytes as the file that tarfile reads."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""

    def read(self, size: int) -> bytes:
        while len(self._rest) < size:
            piece = next(self._pieces, b"")
            if not piece:
                break
            self._rest += piece
        found, self._rest = self._rest[:size], self._rest[size:]
        return found


def unpack(place: str, pieces: Iterable[bytes]) -> None:
    """A sandbox's tar below `place`: nothing outside of it, no devices, no links that lead out (those are left out)."""
    import tarfile

    os.makedirs(place, exist_ok=True)
    left: list[str] = []

    def safe(entry: tarfile.TarInfo, where: str) -> tarfile.TarInfo | None:
        try:
            return tarfile.data_filter(entry, where)
        except tarfile.FilterError:
            left.append(entry.name)
            return None

    reader: Any = _Reader(pieces)
    try:
        with tarfile.open(fileobj=reader, mode="r|", bufsize=_PIECE) as tar:
            tar.extractall(place, filter=safe)
        for _ in iter(lambda: reader.read(_PIECE), b""):
            pass  # padding; an archive that was cut off says so here
    except tarfile.TarError as failure:
        raise error("PROTOCOL_VIOLATION", f"the archive is not whole: {failure}", admitted="yes") from failure
    if left:
        warn(f"left out, because it leads out of {place}: {', '.join(left[:10])}{' …' if len(left) > 10 else ''}")
