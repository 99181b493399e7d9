"""Owns looking for a secret's value wherever an installation could keep it: files, command lines, environments, memory.

Used by tests of whole installations. Invariant: a value is looked for in every form the gateway would hide, and each
search is shown to find something where something is.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kennel.domain.redaction import forms

_PIECE = 4 * 1024 * 1024


class Canaries:
    """Values that share a part which is nowhere else on the machine, so that one look finds any of them."""

    def __init__(self) -> None:
        self._tag = uuid.uuid4().hex
        # A part without odd characters is written the same in URLs, JSON and HTML; what is left are hex and base64.
        self._forms = [form for form in forms(self._tag) if b"%" not in form]

    def value(self, word: str) -> str:
        return f"{word}-/{self._tag}+"

    def within(self, parts: Iterator[bytes]) -> bool:
        """Whether one is in these bytes; parts follow one another."""
        rest = b""
        for part in parts:
            text = rest + part
            if any(form in text for form in self._forms):
                return True
            rest = text[-128:]
        return False


def stored(folder: Path) -> Iterator[Path]:
    """Every file of an installation on the file system it stands on: what is mounted there is another's."""
    device = folder.stat().st_dev
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if os.lstat(Path(at) / name).st_dev == device]
        for name in names:
            path = Path(at) / name
            if path.is_file() and not path.is_symlink():
                yield path


def written(path: Path) -> Iterator[bytes]:
    """A file's bytes without its holes: disks of sandboxes are sparse."""
    with suppress(FileNotFoundError), open(path, "rb") as stream:
        end, size = 0, path.stat().st_size
        while end < size:
            try:
                start = os.lseek(stream.fileno(), end, os.SEEK_DATA)
            except OSError:
                return  # a hole up to the end
            end = os.lseek(stream.fileno(), start, os.SEEK_HOLE)
            for at in range(start, end, _PIECE):
                yield os.pread(stream.fileno(), min(_PIECE, end - at), at)


def told(pid: str) -> Iterator[bytes]:
    """What others can see that a process was started with."""
    for name in ("cmdline", "environ"):
        with suppress(OSError):
            yield Path(f"/proc/{pid}/{name}").read_bytes()


def processes() -> list[str]:
    """Every process of the machine but this one, whose business the value is."""
    return [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def memory(pid: int) -> Iterator[bytes]:
    """What a process could write into a core file: its private memory."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for line in maps:
            span, rights = line.split()[:2]
            start, end = (int(word, 16) for word in span.split("-"))
            if not rights.startswith("rw") or "[vvar" in line:
                continue
            for at in range(start, end, _PIECE):
                with suppress(OSError):
                    mem.seek(at)
                    yield mem.read(min(_PIECE, end - at))
