"""Owns the streams' pages: which streams a project has below a prefix, and one stream's events, paged and live.

Called by console/app.py. Invariant: reading an unknown stream is a 404 and creates nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.responses import Response

from kennel.api.console import live
from kennel.api.console.visit import Visit, get
from kennel.wire.errors import error

PAGE = 200


@dataclass(frozen=True, slots=True)
class Crumb:
    """A part of a path and the prefix it stands for."""

    label: str
    prefix: str


def _crumbs(path: str) -> list[Crumb]:
    parts = [part for part in path.split("/") if part]
    return [Crumb("/", "/"), *(Crumb(part, "/" + "/".join(parts[: n + 1])) for n, part in enumerate(parts))]


def _asked(visit: Visit, name: str) -> str:
    """A stream's path from the address, `/` without one."""
    return "/" + visit.request.query_params.get(name, "/")[:1024].strip("/")


@get("/streams")
async def listing(visit: Visit) -> Response:
    """The streams at or below a prefix."""
    prefix, cursor = _asked(visit, "prefix"), visit.request.query_params.get("cursor", "")[:1024]
    paths = await visit.services.streams.paths(visit.project, prefix, after=cursor, limit=PAGE)
    more = urlencode({"prefix": prefix, "cursor": paths[-1]}) if len(paths) == PAGE else None
    return visit.page("streams.html", prefix=prefix, crumbs=_crumbs(prefix), paths=paths, more=more)


@get("/streams/one")
async def page(visit: Visit) -> Response:
    """One stream, newest first."""
    path, before = _asked(visit, "path"), visit.request.query_params.get("before", "")
    until = int(before) if before.isascii() and before.isdigit() and len(before) < 16 else None
    lines, head = await live.newest(visit, path, before=until)
    if not head:
        raise error("STREAM_NOT_FOUND", f"There is no stream {path}.", hint="streams are made by their first event")
    return visit.page("stream.html", path=path, crumbs=_crumbs(path), lines=lines, head=head, until=until)


@get("/streams/one/events")
async def events(visit: Visit) -> Response:
    """One stream, live."""
    return await live.follow(visit, _asked(visit, "path"))


@get("/streams/one/verification")
async def verification(visit: Visit) -> Response:
    """Whether the stream's hash chain holds."""
    path = _asked(visit, "path")
    found = await visit.services.streams.verify(visit.project, path)
    if visit.partial:
        return visit.piece("verification.html", found=found)
    return visit.go(visit.url("streams", "one") + "?" + urlencode({"path": path}),
                    "The chain holds." if found.holds else "The chain does not hold.")  # fmt: skip


routes = [listing, page, events, verification]
