"""Owns the handle on a room: its commands, its talk, its cleaning up.

Called by programs through `itx.rooms.get(id)`. Invariant: a handle holds an id only; a room comes to be by its first
use, and belongs to the key's project.
"""

from __future__ import annotations

from kennel.sdk._async.transport import AsyncTransport
from kennel.sdk.answers import RoomCleanup, RoomExec, RoomReply
from kennel.sdk.names import segment
from kennel.wire.results import ExecResult


class AsyncRoom:
    """One room, by its id."""

    def __init__(self, transport: AsyncTransport, room_id: str) -> None:
        self._transport = transport
        self._route = f"/api/rooms/{segment(room_id)}"
        self.id = room_id

    def __repr__(self) -> str:
        return f"AsyncRoom({self.id!r})"

    async def exec(self, cmd: str) -> ExecResult:
        """Runs a command in the room's shell, where directory and variables last; makes the room on first use."""
        answer = await self._transport.call("POST", f"{self._route}/sandbox/exec", RoomExec, body={"cmd": cmd})
        return answer.result

    async def send(self, text: str, user_id: str | None = None) -> RoomReply:
        """Says something to the room's model and returns its reply, commands run and their outputs in it."""
        body = {"text": text} if user_id is None else {"text": text, "userId": user_id}
        return await self._transport.call("POST", f"{self._route}/message", RoomReply, body=body, extra=None)

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
