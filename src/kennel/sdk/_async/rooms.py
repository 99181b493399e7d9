"""Owns the handle on a room: its commands, its talk, who is in it, its cleaning up.

Called by programs through `itx.rooms.get(id)`. Invariant: a handle holds an id only; a room comes to be by its first
use, and belongs to the key's project. A join link's token in the key's place reaches its one room.
"""

from __future__ import annotations

import builtins
from typing import Any

from kennel.sdk._async.following import AsyncFollowing
from kennel.sdk._async.transport import AsyncTransport
from kennel.sdk.answers import Message, RoomCleanup, RoomExec, RoomReply
from kennel.sdk.names import segment
from kennel.sdk.room_records import (
    JoinLink,
    JoinLinkList,
    Member,
    MemberList,
    NewJoinLink,
    Revoked,
    RoomMoment,
    RoomPage,
    RoomTalk,
    RoomView,
    moment_of,
    settings_body,
)
from kennel.wire.results import ExecResult

PAGE = 100


class AsyncRoom:
    """One room, by its id."""

    def __init__(self, transport: AsyncTransport, room_id: str) -> None:
        self._transport = transport
        self._route = f"/api/rooms/{segment(room_id)}"
        self.id = room_id

    def __repr__(self) -> str:
        return f"AsyncRoom({self.id!r})"

    async def exec(self, cmd: str, user_id: str | None = None) -> ExecResult:
        """Runs a command in the room's shell, where directory and variables last; makes the room on first use.

        It waits for the commands before it as long as they take, then has the installation's time (120 seconds).
        """
        body = {"cmd": cmd} if user_id is None else {"cmd": cmd, "userId": user_id}
        answer = await self._transport.call("POST", f"{self._route}/sandbox/exec", RoomExec, body=body, extra=None)
        return answer.result

    async def send(self, text: str, user_id: str | None = None) -> RoomReply:
        """Says something to the room's model and returns its reply, commands run and their outputs in it."""
        body = {"text": text} if user_id is None else {"text": text, "userId": user_id}
        return await self._transport.call("POST", f"{self._route}/message", RoomReply, body=body, extra=None)

    async def info(self) -> RoomTalk:
        """The room with its latest messages; NOT_FOUND when nobody uses it."""
        return await self._transport.call("GET", self._route, RoomTalk, repeat=True)

    async def messages(self) -> builtins.list[Message]:
        """The room's latest messages, oldest first; NOT_FOUND when nobody uses it."""
        return (await self.info()).messages

    def events(self, *, after: int = 0) -> AsyncFollowing[RoomMoment]:
        """What happens in the room: its events after offset `after`, then live, with what passes by between them.

        A lost connection is made again from the last event on; what passed by meanwhile is gone. STREAM_NOT_FOUND for
        a room in which nothing has ever happened.
        """
        query = {"after": str(after)}
        return AsyncFollowing(self._transport, f"{self._route}/events", query, moment_of, resume=True)

    async def set_title(self, title: str | None) -> RoomView:
        """Gives the room a title, or takes it away."""
        return await self._transport.call("PUT", self._route, RoomView, body={"title": title}, repeat=True)

    async def set(self, **settings: Any) -> RoomView:
        """Changes settings by the names of `RoomSettings`; None goes back to the installation's own."""
        body = {"settings": settings_body(settings)}
        return await self._transport.call("PUT", self._route, RoomView, body=body, repeat=True)

    async def members(self) -> builtins.list[Member]:
        """Who is in the room, in the order they joined."""
        answer = await self._transport.call("GET", f"{self._route}/members", MemberList, repeat=True)
        return answer.members

    async def join(self, user_id: str, *, role: str | None = None, ttl: int | None = None) -> Member:
        """Joins as `driver` or `observer`, or gives a sign of life that lasts `ttl` seconds (60)."""
        body = {"userId": user_id, "role": role, "ttlSeconds": ttl}
        given = {name: value for name, value in body.items() if value is not None}
        return await self._transport.call("POST", f"{self._route}/members", Member, body=given, repeat=True)

    async def leave(self, user_id: str) -> None:
        """Ends a membership; nothing happens when there is none."""
        query = {"userId": user_id}
        await self._transport.call("DELETE", f"{self._route}/members", type(None), query=query, repeat=True)

    async def links(self) -> builtins.list[JoinLink]:
        """The room's join links that are in force."""
        answer = await self._transport.call("GET", f"{self._route}/links", JoinLinkList, repeat=True)
        return answer.links

    async def create_link(
        self, *, role: str = "driver", name: str = "", user_id: str | None = None, expires_in: int | None = None
    ) -> NewJoinLink:
        """Makes a link to this room alone, good until it is revoked, `expires_in` seconds are over, or the cleanup."""
        body = {"role": role, "name": name, "userId": user_id, "expiresInSeconds": expires_in}
        given = {key: value for key, value in body.items() if value is not None}
        return await self._transport.call("POST", f"{self._route}/links", NewJoinLink, body=given)

    async def revoke_links(self, link_id: str | None = None) -> builtins.list[str]:
        """Revokes one link, or all of the room's; their ids. Who watches by one is cut off at once."""
        query = None if link_id is None else {"id": link_id}
        answer = await self._transport.call("DELETE", f"{self._route}/links", Revoked, query=query)
        return answer.revoked

    async def cleanup(self) -> RoomCleanup:
        """Empties the room and destroys its sandbox; the same id begins afresh. `errors` says what did not work."""
        return await self._transport.call("DELETE", self._route, RoomCleanup)


class AsyncRooms:
    """The rooms of the key's project."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def get(self, room_id: str) -> AsyncRoom:
        """A handle on a room, whether it exists or not; no I/O."""
        return AsyncRoom(self._transport, room_id)

    async def list(self) -> builtins.list[RoomView]:
        """The rooms in use."""
        found: builtins.list[RoomView] = []
        query = {"limit": str(PAGE)}
        while True:
            page = await self._transport.call("GET", "/api/rooms", RoomPage, query=query, repeat=True)
            found += page.rooms
            if page.cursor is None or page.cursor == query.get("cursor"):
                return found
            query["cursor"] = page.cursor
