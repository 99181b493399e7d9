"""Owns the program that packs a tree into a tar on standard output, or unpacks one from standard input.

Started by the `archive.*` operations as a process of its own: `archive.py pack|unpack PATH [gzip]`. Invariant: it holds
one block at a time; when it fails it says so in a line of JSON on standard error and exits with 1; nothing is unpacked
outside of PATH, and what is unpacked belongs to whoever unpacks.
"""

from __future__ import annotations

import os
import sys
import tarfile
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

BLOCK = 256 * 1024


class Exactly:
    """A file that reads as exactly `size` bytes, however it changes meanwhile: cut, or filled up with zeros."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size

    def read(self, count: int = BLOCK) -> bytes:
        """The next bytes."""
        count = min(count, self._left)
        data = self._file.read(count)
        self._left -= count
        return data if len(data) == count else data + bytes(count - len(data))


def pack(path: bytes, mode: str) -> None:
    """The tree or file at `path`, its entries named from there on."""
    with tarfile.open(fileobj=sys.stdout.buffer, mode=mode, format=tarfile.PAX_FORMAT, bufsize=BLOCK) as tar:  # type: ignore[call-overload]
        tar.copybufsize = BLOCK  # type: ignore[attr-defined, unused-ignore]
        top = os.fsdecode(path)
        name = "." if os.path.isdir(top) else os.path.basename(top)
        os.lstat(top)
        for where, below in walk(top, name):
            add(tar, where, below)


def walk(where: str, name: str) -> Iterator[tuple[str, str]]:
    """Every path below and its name in the archive, directories first; links are not followed."""
    pending = [(where, name)]
    while pending:
        where, name = pending.pop()
        yield where, name
        if os.path.isdir(where) and not os.path.islink(where):
            try:
                with os.scandir(where) as found:
                    entries = sorted((entry.name for entry in found), reverse=True)
            except FileNotFoundError:
                continue
            pending += [(os.path.join(where, entry), f"{name}/{entry}") for entry in entries]


def add(tar: tarfile.TarFile, where: str, name: str) -> None:
    """One entry; what vanished, and sockets, are left out."""
    try:
        entry = tar.gettarinfo(where, name)
        if entry is None:
            return
        if not entry.isreg():
            tar.addfile(entry)
            return
        with open(where, "rb") as file:
            tar.addfile(entry, Exactly(file, entry.size))
    except FileNotFoundError:
        return


def unpack(path: bytes) -> None:
    """The archive on standard input (plain or compressed) into the directory `path`."""
    top = os.fsdecode(path)
    os.makedirs(top, exist_ok=True)
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|*", bufsize=BLOCK) as tar:
        tar.copybufsize = BLOCK  # type: ignore[attr-defined, unused-ignore]
        for entry in tar:
            entry.uid, entry.gid = os.getuid(), os.getgid()
            entry.uname = entry.gname = ""
            tar.extract(entry, top, numeric_owner=True, filter="tar")
    while sys.stdin.buffer.read(BLOCK):
        pass  # what follows the end of an archive is padding


def complaint(problem: Exception, path: bytes) -> dict[str, Any]:
    """A failure as an ERROR's payload."""
    if isinstance(problem, OSError) and problem.errno:
        parent, _, name = __file__.rpartition("/")[0].rpartition("/")
        sys.path.append(parent or "/")
        where = os.fsencode(problem.filename) if isinstance(problem.filename, str | bytes) else path
        told: dict[str, Any] = import_module(f"{name}.paths").refusal(problem, where).to_control()
        return told
    return {"code": "VALIDATION_FAILED", "message": f"this is no archive that can be unpacked: {problem}"[:500]}


def main(words: list[str]) -> int:
    """Does what `words` say."""
    verb, path = words[0], os.fsencode(words[1])
    try:
        if verb == "pack":
            pack(path, "w|gz" if "gzip" in words[2:] else "w|")
            sys.stdout.buffer.flush()
        else:
            unpack(path)
    except BrokenPipeError:
        return 1
    except (OSError, tarfile.TarError, EOFError, ValueError) as problem:
        import json

        sys.stderr.write(json.dumps(complaint(problem, path)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
