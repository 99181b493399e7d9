"""Owns what the SDK says about files: facts, contents, changes seen; and how a path becomes a route.

Called by both halves of the SDK. Invariant: a path that is not UTF-8 goes out and comes back byte for byte.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import Any
from urllib.parse import quote

from kennel.sdk.answers import Shape
from kennel.wire.errors import error

Path = str | bytes | os.PathLike[str]
HOME = b"/workspace"
"""Where relative paths begin."""
PIECE = 256 * 1024
"""Bytes of one piece of an upload."""


class Permissions(Shape):
    """Whether anybody at all may."""

    readable: bool
    writable: bool
    executable: bool


class FileInfo(Shape):
    """What a file is. `mode` is as `ls` shows it, `mode_bits` the number; `modified_at` is ISO 8601 in UTC.

    A name that is not UTF-8 has U+FFFD where it is not; its bytes are `path_bytes`.
    """

    name: str
    absolute_path: str
    relative_path: str
    type: str
    modified_at: str
    mode: str
    permissions: Permissions
    size: int | None = None
    mode_bits: int = 0
    uid: int = 0
    gid: int = 0
    links: int = 1
    etag: str = ""
    target: str | None = None
    absolute_path_base64: str | None = None
    relative_path_base64: str | None = None

    @property
    def path_bytes(self) -> bytes:
        """The absolute path, exact."""
        return _exact(self.absolute_path, self.absolute_path_base64)

    @property
    def is_directory(self) -> bool:
        """A directory, not a link to one."""
        return self.type == "directory"


class FileContent(Shape):
    """A whole file; `content` is text, or base64 when `encoding` says so. `lossy`: some of it was not UTF-8."""

    path: str
    content: str
    encoding: str
    mime_type: str
    size: int
    is_binary: bool = False
    lossy: bool = False

    @property
    def data(self) -> bytes:
        """The bytes; of a `lossy` text not the file's own."""
        return base64.b64decode(self.content) if self.encoding == "base64" else self.content.encode()


class FileChanged(Shape):
    """What a change came to: `new_path` is where the outcome lies when that is not what was asked."""

    success: bool
    path: str
    new_path: str | None = None
    file: FileInfo | None = None


class FilePage(Shape):
    files: list[FileInfo]
    cursor: str | None = None
    unreadable: int = 0


class ListingEnd(Shape):
    end: bool
    count: int
    unreadable: int = 0


class WatchEvent(Shape):
    """Something happened to a path: `event_type` is create, modify, delete, move_from, move_to, attrib or overflow.

    After `overflow` anything may have changed: look again.
    """

    event_type: str
    path: str = ""
    is_directory: bool = False
    timestamp: str | None = None
    path_base64: str | None = None

    @property
    def path_bytes(self) -> bytes:
        """The absolute path, exact."""
        return _exact(self.path, self.path_base64)


class WatchStart(Shape):
    path: str


class Changes(Shape):
    """What changed since a version: `status` is unchanged, changed or resync (look again; `reason` says why)."""

    status: str
    version: str
    paths: list[str] = []
    reason: str | None = None


class GitCheckout(Shape):
    """A clone that worked."""

    success: bool
    repo_url: str
    branch: str
    target_dir: str
    commit: str | None = None


class GitOutcome(Shape):
    """What a git command said."""

    success: bool
    output: str = ""


class GitFile(Shape):
    """One file of a status: `index` and `worktree` are git's letters; `original` is where a renamed one was."""

    path: str
    index: str
    worktree: str
    original: str | None = None


class GitStatus(Shape):
    """A repository's state; `ahead` and `behind` count commits to `upstream`."""

    branch: str | None
    commit: str | None
    clean: bool
    files: list[GitFile] = []
    upstream: str | None = None
    ahead: int = 0
    behind: int = 0


class GitBranches(Shape):
    """Local and remote branches; `current` is None when HEAD is detached."""

    current: str | None
    branches: list[str]
    remotes: list[str] = []


def _exact(text: str, encoded: str | None) -> bytes:
    if encoded is None:
        return text.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as failure:
        raise error("PROTOCOL_VIOLATION", "the server's base64 is not base64") from failure


def absolute(path: Path) -> bytes:
    """A path's bytes, from /workspace on when it is relative; INVALID_PATH for none, or with a NUL."""
    raw = os.fsencode(path)
    if not raw or b"\0" in raw:
        raise error("INVALID_PATH", f"{path!r} is no path", admitted="no")
    return raw if raw.startswith(b"/") else HOME + b"/" + raw


def route_of(path: Path) -> str:
    """The path as the end of a route, each of its bytes kept; dots that a proxy would resolve are encoded."""
    parts = (quote(part, safe="") for part in absolute(path)[1:].split(b"/"))
    return "/".join(part.replace(".", "%2E") if part in (".", "..") else part for part in parts)


def named(key: str, path: Path) -> dict[str, Any]:
    """The path as a field of a body: text, or base64 when it is not UTF-8."""
    raw = absolute(path)
    try:
        return {key: raw.decode()}
    except UnicodeDecodeError:
        return {f"{key}Base64": base64.b64encode(raw).decode()}


def given(**fields: Any) -> dict[str, str]:
    """Query fields that have a value."""
    words = {True: "true", False: "false"}
    return {name: words.get(value, str(value)) if isinstance(value, bool) else str(value)
            for name, value in fields.items() if value is not None and value is not False}  # fmt: skip


def octal(mode: int | str | None) -> str | None:
    """Permission bits as the API takes them: 0o755, or "755" as people write it."""
    return mode if mode is None or isinstance(mode, str) else f"{mode:o}"
