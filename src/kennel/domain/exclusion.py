"""Owns what a pack may leave out: the list of paths that was made inside the sandbox, checked, and the default names.

Called by control before it asks node to pack. Invariant: what comes out is relative, has no `..`, `.` or empty element,
no path below another, and is bounded in number and bytes, whatever the sandbox said.
"""

from __future__ import annotations

from collections.abc import Iterable

from kennel.wire.errors import error

DEFAULT_NAMES = ("node_modules",)
"""Left out wherever they stand, also when nothing inside could make a list."""

MAX_PATHS = 100_000
MAX_BYTES = 8 << 20
MAX_LIVE_PATHS = 10_000
"""A live pack holds the sandbox frozen while it looks at them."""

MAX_ELEMENTS = 256
"""Elements of one path; more than PATH_MAX has room for in practice, and a bound on the walk."""


def parse(listing: bytes) -> list[bytes]:
    """The paths of a NUL-separated list, as `checked` gives them."""
    if len(listing) > MAX_BYTES:
        raise error("PACK_TOO_LARGE", f"the list of paths to leave out is longer than {MAX_BYTES} bytes")
    return checked(path for path in listing.split(b"\0") if path)


def checked(paths: Iterable[bytes], most: int = MAX_PATHS) -> list[bytes]:
    """Valid paths in order, none below another; ones that are not valid are dropped, too many are PACK_TOO_LARGE.

    A trailing slash, as git writes for directories, is taken off.
    """
    found: set[bytes] = set()
    for path in paths:
        bare = path[:-1] if path.endswith(b"/") else path
        if valid(bare):
            found.add(bare)
            if len(found) > most:
                raise error("PACK_TOO_LARGE", f"more than {most} paths are to be left out")
    kept: list[bytes] = []
    for path in sorted(found, key=lambda each: each.split(b"/")):
        if not kept or not path.startswith(kept[-1] + b"/"):
            kept.append(path)
    return kept


def valid(path: bytes) -> bool:
    """Whether `path` names something strictly below the workspace, element by element."""
    if not path or b"\0" in path or len(path) > 4096:
        return False
    parts = path.split(b"/")
    return len(parts) <= MAX_ELEMENTS and all(part not in (b"", b".", b"..") and len(part) <= 255 for part in parts)


def join(paths: Iterable[bytes]) -> bytes:
    """The list as it travels: each path with a NUL behind it."""
    return b"".join(path + b"\0" for path in paths)
