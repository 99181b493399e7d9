"""Owns how a sandbox's paths stand in the console's addresses, forms and pages: bytes in all of them, UTF-8 or not.

Called by the files page. Invariant: a path goes out and comes back byte for byte; what is shown of it holds no
character that moves or hides others.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from kennel.api.console import text
from kennel.api.console.visit import Visit
from kennel.domain.file import FileFacts, check_path, path_from
from kennel.wire.errors import error

HOME = b"/workspace"


@dataclass(frozen=True, slots=True)
class Place:
    """A path with the ways it is written."""

    path: bytes
    facts: FileFacts | None = None

    @property
    def name(self) -> str:
        """The last part, for people."""
        return text.name(self.path.rstrip(b"/").rpartition(b"/")[2] or b"/")

    @property
    def root(self) -> bool:
        """Whether nothing is above it."""
        return not self.path.strip(b"/")

    @property
    def shown(self) -> str:
        """All of it, for people."""
        return text.name(self.path)

    @property
    def query(self) -> str:
        """As the `path` of an address."""
        return f"?path={quote(self.path, safe='/')}"

    @property
    def sealed(self) -> str:
        """As a field of a form."""
        return base64.b64encode(self.path).decode()

    @property
    def above(self) -> Place:
        """The directory it lies in; the root's own is the root."""
        return Place(self.path.rstrip(b"/").rpartition(b"/")[0] or b"/")

    @property
    def crumbs(self) -> list[Place]:
        """The root and every directory on the way, itself the last."""
        parts = [part for part in self.path.split(b"/") if part]
        return [Place(b"/"), *(Place(b"/" + b"/".join(parts[: n + 1])) for n in range(len(parts)))]

    def below(self, name: bytes, facts: FileFacts | None = None) -> Place:
        """What lies in it."""
        return Place(self.path.rstrip(b"/") + b"/" + name, facts)


def asked(visit: Visit, otherwise: bytes | None = None) -> Place:
    """The place that the address names; INVALID_PATH for none where there must be one."""
    for pair in bytes(visit.request.scope["query_string"]).split(b"&"):
        key, _, value = pair.partition(b"=")
        if key == b"path" and value:
            return Place(check_path(unquote_to_bytes(value.replace(b"+", b" "))))
    if otherwise is None:
        raise error("INVALID_PATH", "The address names no file.", admitted="no")
    return Place(otherwise)


def sent(visit: Visit) -> Place:
    """The place that the form names."""
    return Place(path_from(None, visit.form.text("at")))


def new_name(visit: Visit) -> bytes:
    """A name that was typed, as one part of a path; INVALID_PATH."""
    name = visit.form.text("name").encode("utf-8", "surrogatepass")
    if not name or name in (b".", b"..") or b"/" in name or b"\0" in name:
        raise error("INVALID_PATH", "A name is not empty and holds no slash.", admitted="no")
    return name
