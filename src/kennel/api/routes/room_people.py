"""Owns the routes of who is in a room: its members and their signs of life, its join links.

Included by routes/rooms.py. Invariants: a link's token is in the answer to its making and nowhere else; a link's holder
joins with its link's role and takes nobody else's away.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import AfterValidator, Field, StringConstraints
from starlette.responses import Response

from kennel.api.access import InProject
from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.fields import INTEGRAL
from kennel.api.openapi import WITH_BODY, answers, listing, ref
from kennel.api.room_access import OF_ROOM, Keeper, Looker, RoomBody, RoomId, Runner, room_id_of, speaker
from kennel.api.services import services_of
from kennel.domain.membership import Guest, Role
from kennel.domain.turn import MAX_USER_ID
from kennel.wire.errors import error

router = APIRouter(route_class=StrictRoute)

GUEST = "guest"
"""Who joins without a name."""
MAX_SECONDS = 366 * 24 * 3600


_INNER = r"[^\u0000-\u001f\u007f-\u009f\u2028\u2029]"
_END = r"[^\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"
_NAME = rf"{_END}(?:{_INNER}*{_END})?"
_NAME_PATTERN = re.compile(_NAME)


def _named(name: str) -> str:
    if name and _NAME_PATTERN.fullmatch(name) is None:
        raise ValueError("no control characters, no blanks at the ends")
    return name


Person = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_USER_ID),
    AfterValidator(_named),
    Field(json_schema_extra={"pattern": f"^{_NAME}$"}),
]
Label = Annotated[
    str,
    StringConstraints(max_length=100),
    AfterValidator(_named),
    Field(json_schema_extra={"pattern": f"^(?:{_NAME})?$"}),
]


class Joining(RoomBody):
    """Somebody who comes or is still there; `ttlSeconds` is how long this sign of life lasts."""

    user_id: Person | None = None
    role: Literal["driver", "observer"] | None = None
    ttl_seconds: Annotated[int, Field(ge=1, le=3600), INTEGRAL] | None = None


class NewLink(RoomBody):
    """A join link: what its holder may do, who they are in the room, how long it is good; all optional."""

    role: Literal["driver", "observer"] = "driver"
    name: Label = ""
    user_id: Person | None = None
    expires_in_seconds: Annotated[int, Field(ge=1, le=MAX_SECONDS), INTEGRAL] | None = None


@router.get("/{roomId:segment}/members", responses=answers(200, listing("members", ref("MemberView")), *OF_ROOM))
async def members(request: Request, room_id: RoomId, caller: Looker) -> Response:
    """The members with their roles, and who of them is present."""
    found = await services_of(request).rooms.members.list(caller.project, room_id_of(room_id))
    return json_response({"members": found})


@router.post("/{roomId:segment}/members", responses=answers(200, ref("MemberView"), *OF_ROOM, *WITH_BODY))
async def join(request: Request, room_id: RoomId, body: Joining, caller: Looker) -> Response:
    """Joins, or gives a sign of life; an observer may look and never run or say anything.

    `role` is a matter of a key that may run commands; everybody else gets, or keeps, what they have.
    """
    room, user_id = room_id_of(room_id), speaker(caller.who, body.user_id) or GUEST
    newcomer, may_change = _standing(caller)
    member = await services_of(request).rooms.members.join(
        caller.who,
        caller.project,
        room,
        user_id,
        role=body.role,
        newcomer=newcomer,
        may_change=may_change,
        seconds=body.ttl_seconds,
    )
    return json_response(member)


def _standing(caller: InProject) -> tuple[Role, bool]:
    """The role that a newcomer gets from this caller, and whether the caller may say another."""
    if isinstance(caller.who, Guest):
        return caller.who.role, False
    return ("driver", True) if caller.who.may("exec", caller.project) else ("observer", False)


@router.delete("/{roomId:segment}/members", status_code=204, responses=answers(204, None, *OF_ROOM, *WITH_BODY))
async def leave(
    request: Request, room_id: RoomId, caller: Runner, user_id: Annotated[str, Query(alias="userId", max_length=128)]
) -> Response:
    """Ends a membership; nothing happens when there is none. By a link, only the holder's own."""
    if isinstance(caller.who, Guest) and caller.who.user_id != user_id:
        raise error("FORBIDDEN", "this link cannot send others away", admitted="no")
    await services_of(request).rooms.members.leave(caller.who, caller.project, room_id_of(room_id), user_id)
    return Response(status_code=204)


_LINK = {
    "type": "object",
    "required": ["token", "link"],
    "properties": {"token": {"type": "string"}, "link": ref("LinkView")},
}
_REVOKED = listing("revoked", {"type": "string"})


@router.get("/{roomId:segment}/links", responses=answers(200, listing("links", ref("LinkView")), *OF_ROOM))
async def links(request: Request, room_id: RoomId, caller: Keeper) -> Response:
    """The room's links that are in force, never their tokens."""
    found = await services_of(request).rooms.links.list(caller.project, room_id_of(room_id))
    return json_response({"links": found})


@router.post("/{roomId:segment}/links", status_code=201, responses=answers(201, _LINK, *OF_ROOM, *WITH_BODY))
async def create_link(request: Request, room_id: RoomId, body: NewLink, caller: Keeper) -> Response:
    """Makes a link to this room alone; `token` is shown this once and stands where a key would.

    It ends when it is revoked, runs out, or the room is cleaned.
    """
    token, link = await services_of(request).rooms.links.create(
        caller.who,
        caller.project,
        room_id_of(room_id),
        role=body.role,
        name=body.name,
        user_id=body.user_id,
        seconds=body.expires_in_seconds,
    )
    return json_response({"token": token, "link": link}, 201)


@router.delete("/{roomId:segment}/links", responses=answers(200, _REVOKED, *OF_ROOM, *WITH_BODY, "NOT_FOUND"))
async def revoke_links(
    request: Request, room_id: RoomId, caller: Keeper, id: Annotated[str | None, Query(max_length=128)] = None
) -> Response:
    """Revokes the link `id`, or without it every link of the room, at once; who watches by one is cut off."""
    rooms = services_of(request).rooms
    found = await rooms.links.revoke(caller.who, caller.project, room_id_of(room_id), id)
    return json_response({"revoked": list(found)})
