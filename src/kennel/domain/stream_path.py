"""Owns the rules for a stream's address: an absolute, already normalised path inside a project.

Called by the event log before any look-up and by the public stream routes. Invariant: one stream has one spelling, so
a path that would have to be normalised is refused, never rewritten.
"""

from __future__ import annotations

import re
import unicodedata

from kennel.wire.errors import KennelError, error

ROOT = "/"
MAX_PATH = 1024
"""Bytes of UTF-8 in a whole path."""
MAX_SEGMENTS = 16
"""Every ancestor of a new stream is told of it, so depth is paid for at each birth."""
MAX_SEGMENT = 255
"""Bytes of UTF-8 in one segment."""
_FORBIDDEN = set('\\?#% "<>^`{|}')

PROJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
INSTALLATION = "_kennel"
"""The project of the installation's own streams; its underscore keeps it out of every caller's reach."""


def _refuse(path: object, why: str) -> KennelError:
    shown = path[:80] if isinstance(path, str) else type(path).__name__
    return error(
        "INVALID_PATH", f"invalid stream path: {why}", details={"path": shown.encode("utf-8", "replace").decode()}
    )


def _segment_fault(segment: str) -> str | None:
    """Why this segment cannot be part of a path, or None."""
    if segment in ("", ".", ".."):
        return "empty, '.' and '..' segments are not allowed"
    if not segment.isprintable() or _FORBIDDEN & set(segment):
        return "a segment holds a character that is not allowed"
    if len(segment.encode()) > MAX_SEGMENT:
        return f"a segment is longer than {MAX_SEGMENT} bytes"
    return None


def check_path(path: object) -> str:
    """The path itself when it is a valid stream path; INVALID_PATH otherwise."""
    if not isinstance(path, str) or not path.startswith(ROOT):
        raise _refuse(path, "it must be text that starts with '/'")
    if len(path) > MAX_PATH:
        raise _refuse(path, f"longer than {MAX_PATH} bytes")
    if path == ROOT:
        return path
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise _refuse(path, "not valid Unicode") from None
    if len(encoded) > MAX_PATH:
        raise _refuse(path, f"longer than {MAX_PATH} bytes")
    if not unicodedata.is_normalized("NFC", path):
        raise _refuse(path, "not in Unicode normal form C")
    segments = path[1:].split("/")
    if len(segments) > MAX_SEGMENTS:
        raise _refuse(path, f"more than {MAX_SEGMENTS} segments")
    for segment in segments:
        if fault := _segment_fault(segment):
            raise _refuse(path, fault)
    return path


def ancestors(path: str) -> list[str]:
    """Every proper ancestor of a valid path, root first; none for the root."""
    if path == ROOT:
        return []
    parts = path[1:].split("/")
    return [ROOT, *("/" + "/".join(parts[:n]) for n in range(1, len(parts)))]


def check_project_name(name: object) -> str:
    """The name itself when a project may be called so: 1–63 of `a-z0-9-`, no dash at the ends."""
    if not isinstance(name, str) or not PROJECT_NAME.fullmatch(name):
        raise error(
            "VALIDATION_FAILED",
            "invalid project name",
            details={"name": ["1 to 63 of a-z, 0-9 and '-', no '-' at the ends"]},
        )
    return name


def check_project(name: object) -> str:
    """The name itself when streams can lie under it: a project's, or the installation's own; PROJECT_NOT_FOUND."""
    if name == INSTALLATION or (isinstance(name, str) and PROJECT_NAME.fullmatch(name)):
        return str(name)
    raise error("PROJECT_NOT_FOUND", "there is no such project")
