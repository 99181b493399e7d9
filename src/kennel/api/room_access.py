"""Owns who may do what in a room: a key by its scopes, a join link by its role, and which room a path names.

Called by the gate (links) and the rooms routes. Invariants: a room id is one raw path segment, decoded once; a link's
holder reaches its one room and nothing else of the API; a link that pins who its holder is cannot be spoken around.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Path, Request
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Scope

from kennel.api.access import InProject, allow_in_own, caller
from kennel.api.openapi import IN_PROJECT
from kennel.api.services import Rooms
from kennel.domain.membership import Guest
from kennel.domain.room import MAX_ROOM_ID, check_room_id
from kennel.wire.errors import KennelError, error

PREFIX = "/api/rooms/"
OF_ROOM = (*IN_PROJECT, "RESOURCE_BUSY")
"""Errors of every room's route."""
_OF_DRIVERS = frozenset({"read", "exec"})


class _Segment(Convertor[str]):
    """One path segment, also an empty one: its complaint is the room id's, not an unknown route's."""

    regex = "[^/]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("segment", _Segment())


class RoomBody(BaseModel):
    """A body of a room's request: strict types, camelCase, other fields ignored, as the seed does."""

    model_config = ConfigDict(strict=True, alias_generator=to_camel, validate_by_name=False)


def room_id_of(raw: str) -> str:
    """The room id of an undecoded segment; VALIDATION_FAILED when it is none."""
    try:
        return check_room_id(unquote_to_bytes(raw.encode("latin-1")).decode())
    except UnicodeError:
        raise error("VALIDATION_FAILED", "invalid request", details={"roomId": ["not UTF-8"]}) from None


class LinkDoor:
    """Lets the holder of a join link in, to its room's routes only."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def __call__(self, scope: Scope, token: str) -> Guest:
        """Who holds this token; UNAUTHORIZED, or FORBIDDEN anywhere but in its room."""
        guest = await self._rooms.links.authenticate(token)
        raw = scope.get("raw_path", b"").partition(b"?")[0].decode("latin-1")
        segment = raw.removeprefix(PREFIX).partition("/")[0]
        with contextlib.suppress(KennelError):
            if raw.startswith(PREFIX) and room_id_of(segment) == guest.room_id:
                return guest
        raise error("FORBIDDEN", "this link opens one room and nothing else")


def allow_in_room(scope: str) -> Callable[[Request], Coroutine[Any, Any, InProject]]:
    """A dependency: the caller in the room's project, if its key has `scope` or its link allows as much."""
    by_key = allow_in_own(scope)

    async def allowed(request: Request) -> InProject:
        who = caller(request)
        if not isinstance(who, Guest):
            return await by_key(request)
        if scope == "read" or (who.role == "driver" and scope in _OF_DRIVERS):
            return InProject(who, str(who.project))
        raise error("FORBIDDEN", f"this link does not allow that: it makes its holder a {who.role}", admitted="no")

    return allowed


RoomId = Annotated[
    str,
    Path(
        alias="roomId",
        description=f"1 to {MAX_ROOM_ID} characters, percent-encoded, no control characters",
        json_schema_extra={"minLength": 1, "maxLength": MAX_ROOM_ID, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$"},
    ),
]

Looker = Annotated[InProject, Depends(allow_in_room("read"))]
Runner = Annotated[InProject, Depends(allow_in_room("exec"))]
Keeper = Annotated[InProject, Depends(allow_in_room("lifecycle"))]


def speaker(who: object, named: str | None) -> str | None:
    """Who is speaking: whom the link says, else whom the request names."""
    if isinstance(who, Guest) and who.user_id is not None:
        return who.user_id
    return named or None
