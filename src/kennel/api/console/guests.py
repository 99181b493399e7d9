"""Owns what the holder of a join link may open in the console: its room's page and, for a driver, the sandbox in it.

Called by `visit` for every request of such a session, which has no key. Invariants: a page is closed to links unless it
says otherwise; a link reaches the one room it was made for and the sandbox which that room has now; an observer looks
at what is said and what happens, and changes nothing.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode

from starlette.requests import HTTPConnection

from kennel.api.console.rendering import ROOT
from kennel.api.services import services_of
from kennel.domain import room
from kennel.domain.membership import Guest
from kennel.domain.names import path_of
from kennel.wire.errors import KennelError, error

JOIN = f"{ROOT}/join"
PREFIX = "/rooms/"
_MAY = {"observer": frozenset({"read"}), "driver": frozenset({"read", "exec", "files"})}


def may(guest: Guest, scope: str, project: str) -> bool:
    """Whether this link allows that much, in its own room."""
    return project == guest.project and scope in _MAY[guest.role]


def home(guest: Guest) -> str:
    """The address of the room's page."""
    segment = room.stream_of(guest.room_id).removeprefix(PREFIX)
    project = quote(str(guest.project), safe="")
    return f"{ROOT}/p/{project}/rooms/{quote(segment, safe='')}?{urlencode({'id': guest.room_id})}"


def invitation(base: str, token: str) -> str:
    """The address that opens a room in a browser; what follows `#` is sent to no server."""
    return f"{base.rstrip('/')}{JOIN}#{token}"


async def admit(connection: HTTPConnection, guest: Guest, project: str, needs: str | None) -> Guest:
    """The link's holder, if this address is of its room or that room's sandbox; FORBIDDEN, PROJECT_NOT_FOUND."""
    words = connection.path_params
    if needs is None:
        raise error("FORBIDDEN", "this link opens one room and nothing else", admitted="no")
    if project != guest.project:
        raise error("PROJECT_NOT_FOUND", "no such project", admitted="no")
    if not may(guest, needs, project):
        raise error("FORBIDDEN", f"this link does not allow that: it makes its holder a {guest.role}", admitted="no")
    if "name" in words:
        if await _sandbox(connection, guest) != path_of(words["name"]):
            raise error("FORBIDDEN", "this link opens one room and nothing else", admitted="no")
    elif PREFIX + words["segment"] != room.stream_of(guest.room_id):
        raise error("FORBIDDEN", "this link opens one room and nothing else", admitted="no")
    return guest


async def _sandbox(connection: HTTPConnection, guest: Guest) -> str | None:
    """The path of the sandbox that the room has now."""
    try:
        return (await services_of(connection).rooms.view(str(guest.project), guest.room_id)).sandbox
    except KennelError as failure:
        if failure.code != "NOT_FOUND":
            raise
        return None
