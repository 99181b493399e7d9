"""Owns who is in a room, as the console shows it: members, joining and leaving, join links.

Called by console/app.py and by the rooms' page. Invariants: looking joins nobody; a link's token stands in the one
answer that made it.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from kennel.api.console.forms import checked, lasting
from kennel.api.console.guests import invitation
from kennel.api.console.rooms import RoomView, found_room
from kennel.api.console.visit import Visit, get, post
from kennel.api.room_access import speaker
from kennel.api.routes.room_people import GUEST, Joining, NewLink
from kennel.wire.errors import KennelError

SIGN_SECONDS = 60
"""How long a sign of life from an open page lasts; the page gives one every 25 seconds."""


async def people(visit: Visit, here: RoomView, token: str = "") -> dict[str, Any]:
    """What the panel shows; nobody in a room that nobody has used."""
    rooms, members, links = visit.services.rooms, [], []
    try:
        members = list(await rooms.members.list(visit.project, here.room_id))
        if visit.may("lifecycle"):
            links = list(await rooms.links.list(visit.project, here.room_id))
    except KennelError as failure:
        if failure.code not in ("NOT_FOUND", "STREAM_NOT_FOUND"):
            raise
    shown = _address(visit, token) if token else ""
    return {"room": here, "members": members, "join_links": links, "shown": shown}


def _address(visit: Visit, token: str) -> str:
    url = visit.request.url
    return invitation(f"{url.scheme}://{url.netloc}", token)


async def _done(visit: Visit, here: RoomView, token: str = "") -> Response:
    if visit.partial:
        return visit.piece("people.html", **await people(visit, here, token))
    told = f"The new link, shown this once: {_address(visit, token)}" if token else None
    return visit.go(visit.url("rooms", here.segment), told)


@get("/rooms/{segment}/people", link="read")
async def panel(visit: Visit) -> Response:
    """The panel alone."""
    return visit.piece("people.html", **await people(visit, await found_room(visit)))


@post("/rooms/{segment}/join", "exec", link="read")
async def join(visit: Visit) -> Response:
    """Joins under a name, or gives a sign of life."""
    here = await found_room(visit)
    named, guest = visit.form.text("userId").strip(), visit.guest
    words: dict[str, Any] = {"userId": speaker(visit.who, named), "ttlSeconds": SIGN_SECONDS}
    if visit.form.text("role") and guest is None:
        words["role"] = visit.form.text("role")
    body = checked(Joining, words)
    await visit.services.rooms.members.join(
        visit.who, visit.project, here.room_id, body.user_id or GUEST, role=body.role,
        newcomer="driver" if guest is None else guest.role, may_change=guest is None, seconds=body.ttl_seconds,
    )  # fmt: skip
    return await _done(visit, here)


@post("/rooms/{segment}/leave", "exec")
async def leave(visit: Visit) -> Response:
    """Ends a membership."""
    here = await found_room(visit)
    await visit.services.rooms.members.leave(visit.who, visit.project, here.room_id, visit.form.text("userId"))
    return await _done(visit, here)


@post("/rooms/{segment}/links", "lifecycle")
async def link(visit: Visit) -> Response:
    """Makes a join link; its token is shown once."""
    here, form = await found_room(visit), visit.form
    words = {
        "role": form.text("role"),
        "name": form.text("name").strip(),
        "expiresInSeconds": lasting(form),
    }
    body = checked(NewLink, words)
    token, _ = await visit.services.rooms.links.create(
        visit.who, visit.project, here.room_id, role=body.role, name=body.name, user_id=None,
        seconds=body.expires_in_seconds,
    )  # fmt: skip
    return await _done(visit, here, token)


@post("/rooms/{segment}/links/{link}/revoke", "lifecycle")
async def revoke(visit: Visit) -> Response:
    """Ends a link at once."""
    here = await found_room(visit)
    await visit.services.rooms.links.revoke(
        visit.who, visit.project, here.room_id, visit.request.path_params["link"][:128]
    )
    return await _done(visit, here)


routes: list[BaseRoute] = [panel, join, leave, link, revoke]
