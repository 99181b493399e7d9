"""Owns paths of files inside of URLs: byte for byte what the caller percent-encoded, UTF-8 or not.

Called by the routes of files and archives. Invariant: the project and the sandbox that were authorized are those of the
undecoded URL too; what differs is no route.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import unquote, unquote_to_bytes

from fastapi import Path, Request
from starlette.convertors import Convertor, register_url_convertor

from kennel.api.fields import NO_NUL
from kennel.domain.file import check_path
from kennel.wire.errors import error

_SEGMENTS = 7
"""Slashes before the file's path: /v1/projects/P/sandboxes/N/files/…"""


class _Anything(Convertor[str]):
    """The rest of the path, line breaks included."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


ANYTHING = "anything"
"""The convertor's name; who uses it in a route imports it from here, so that it is known by then."""
register_url_convertor(ANYTHING, _Anything())

FilePath = Annotated[
    str,
    Path(
        description="absolute path in the sandbox without its leading slash; bytes percent-encoded",
        examples=["etc/hosts"],
        json_schema_extra=NO_NUL,
    ),
]


def file_path(request: Request) -> bytes:
    """The file that the URL names; NOT_FOUND when its segments are not those that were routed, INVALID_PATH."""
    raw = bytes(request.scope.get("raw_path") or b"").partition(b"?")[0]
    parts = raw.split(b"/", _SEGMENTS)
    routed = request.path_params
    if len(parts) <= _SEGMENTS or any(
        unquote(parts[at].decode("latin-1")) != routed[name] for at, name in ((3, "project"), (5, "name"))
    ):
        raise error("NOT_FOUND", "no such route")
    return check_path(b"/" + unquote_to_bytes(parts[_SEGMENTS]))
