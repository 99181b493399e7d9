"""Owns what is known of a file in a sandbox, and how its path is written for people and programs; no I/O.

Called by control and the API. Invariant: a path is bytes, because Linux's are; as text it is exact when it is UTF-8,
and carries its bytes in base64 beside it when it is not.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from kennel.wire.errors import error

MAX_PATH = 4095
"""Linux's PATH_MAX without its NUL, in bytes."""
FileType = Literal["file", "directory", "symlink", "other"]


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a stat says. `size` is None when it is only known at the end of reading; times are ns since 1970."""

    type: FileType
    size: int | None
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    links: int
    target: bytes | None = None

    @property
    def etag(self) -> str:
        """Changes when the content may have: a quoted entity tag."""
        return f'"{self.inode:x}-{self.size or 0:x}-{self.mtime_ns:x}-{self.ctime_ns:x}"'


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a listing; `name` is relative to the directory that was listed."""

    name: bytes
    facts: FileFacts


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """Something that happened to a path; `kind` is one of WATCH_KINDS, `at_ms` the sandbox's clock."""

    kind: str
    path: bytes
    is_directory: bool
    at_ms: int


WATCH_KINDS = frozenset({"create", "modify", "delete", "move_from", "move_to", "attrib", "overflow"})


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What of a tree is watched; patterns know `*`, `**` and `?`, and of include and exclude one is None."""

    recursive: bool = True
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeReport:
    """What changed since a version: `status` is unchanged, changed or resync, the last with a `reason`."""

    status: str
    version: str
    paths: tuple[bytes, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a file is written. `mode` None keeps the old file's, or 0644; `user` names whose rights count."""

    mode: int | None = None
    exclusive: bool = False
    parents: bool = True
    user: str | None = None


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """What a saved directory leaves out by name, and the most it may hold: apparent bytes, names."""

    names: tuple[str, ...]
    max_bytes: int
    max_names: int


def mode_text(mode: int) -> str:
    """`rwxr-xr-x` for 0o755; set-id and sticky bits as `ls` shows them."""
    letters = [letter if mode >> (8 - at) & 1 else "-" for at, letter in enumerate("rwxrwxrwx")]
    for bit, at, both, alone in ((0o4000, 2, "s", "S"), (0o2000, 5, "s", "S"), (0o1000, 8, "t", "T")):
        if mode & bit:
            letters[at] = both if letters[at] == "x" else alone
    return "".join(letters)


def when(ns: int) -> str:
    """ISO 8601 in UTC with milliseconds; a time no calendar has becomes the nearest it has."""
    seconds = max(-62_135_596_800, min(ns // 1_000_000_000, 253_402_300_799))
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=ns // 1_000_000 % 1000 * 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def name_fields(key: str, path: bytes) -> dict[str, str]:
    """`{key: text}`, and `{key}Base64` beside it when the text is not exact."""
    try:
        return {key: path.decode()}
    except UnicodeDecodeError:
        return {key: path.decode("utf-8", "replace"), f"{key}Base64": base64.b64encode(path).decode()}


def to_wire(path: bytes, facts: FileFacts, relative: bytes | None = None) -> dict[str, Any]:
    """A file as the API shows it."""
    told: dict[str, Any] = {
        **name_fields("name", path.rstrip(b"/").rpartition(b"/")[2] or b"/"),
        **name_fields("absolutePath", path),
        **name_fields("relativePath", relative if relative is not None else path.rpartition(b"/")[2]),
        "type": facts.type,
        "size": facts.size,
        "modifiedAt": when(facts.mtime_ns),
        "mode": mode_text(facts.mode),
        "permissions": {
            "readable": bool(facts.mode & 0o444),
            "writable": bool(facts.mode & 0o222),
            "executable": bool(facts.mode & 0o111),
        },
        "modeBits": facts.mode,
        "uid": facts.uid,
        "gid": facts.gid,
        "links": facts.links,
        "etag": facts.etag,
    }
    if facts.target is not None:
        told |= name_fields("target", facts.target)
    return told


def check_path(path: bytes) -> bytes:
    """An absolute path as the kernel would take it; INVALID_PATH or NAME_TOO_LONG."""
    if not path.startswith(b"/") or b"\0" in path:
        raise error("INVALID_PATH", "a file's path is absolute and holds no NUL", admitted="no")
    if len(path) > MAX_PATH:
        raise error("NAME_TOO_LONG", f"a path has at most {MAX_PATH} bytes", admitted="no")
    return path


def path_from(text: str | None, encoded: str | None) -> bytes:
    """The path of a request that gives it as text or in base64; VALIDATION_FAILED, INVALID_PATH."""
    if (text is None) == (encoded is None):
        raise error("VALIDATION_FAILED", "a path is given as text or in base64", admitted="no")
    if text is not None:
        return check_path(text.encode("utf-8", "surrogatepass"))
    try:
        return check_path(base64.b64decode(encoded or "", validate=True))
    except (binascii.Error, ValueError):
        raise error("VALIDATION_FAILED", "a path is not base64", admitted="no") from None
