"""Owns how names become addresses on the server, and the names that this side makes up.

Called by both halves of the SDK. Invariant: whatever a caller passes stays one segment of the route.
"""

from __future__ import annotations

import os
from urllib.parse import quote

from kennel.wire.errors import error

PREFIX = "/sandboxes/"


def sandbox_name(path: str) -> str:
    """`main` of `/sandboxes/main` or `main`; INVALID_PATH when it cannot be one segment. The server knows the rest."""
    name = path.removeprefix(PREFIX)
    if not name or "/" in name or name in (".", "..") or not name.isprintable():
        hint = "a sandbox's path is /sandboxes/NAME; a name is 1 to 63 of a-z, 0-9 and dashes"
        raise error("INVALID_PATH", f"{path!r} is not a sandbox's path", hint=hint)
    return name


def new_request_id() -> str:
    """A name for one creating call that no other call has: 32 random hex digits."""
    return os.urandom(16).hex()


def stream_segments(path: str) -> str:
    """A stream's path as the end of a route; INVALID_PATH unless it begins with a slash. The server knows the rest."""
    if not path.startswith("/"):
        raise error("INVALID_PATH", f"{path!r} is not a stream's path", hint="it begins with a slash: /notes/mine")
    return "/".join(segment(part) for part in path.split("/"))


def segment(text: str) -> str:
    """`text` as one segment of a route: everything but letters, digits and `-_~` percent-encoded.

    Dots are encoded when there is nothing else, because clients and proxies resolve `.` and `..` away.
    """
    encoded = quote(text, safe="", errors="surrogatepass")
    return encoded.replace(".", "%2E") if encoded.strip(".") == "" else encoded
