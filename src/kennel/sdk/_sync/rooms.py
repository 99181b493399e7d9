# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns the handle on a room: its commands, its talk, its cleaning up.

Called by programs through `itx.rooms.get(id)`. Invariant: a handle holds an id only; a room comes to be by its first
use, and belongs to the key's project.
"""

from __future__ import annotations

from kennel.sdk._sync.transport import Transport
from kennel.sdk.answers import RoomCleanup, RoomExec, RoomReply
from kennel.sdk.names import segment
from kennel.wire.results import ExecResult


class Room:
    """One room, by its id."""

    def __init__(self, transport: Transport, room_id: str) -> None:
        self._transport = transport
        self._route = f"/api/rooms/{segment(room_id)}"
        self.id = room_id

    def __repr__(self) -> str:
        return f"Room({self.id!r})"

    def exec(self, cmd: str) -> ExecResult:
        """Runs a command in the room's shell, where directory and variables last; makes the room on first use."""
        answer = self._transport.call("POST", f"{self._route}/sandbox/exec", RoomExec, body={"cmd": cmd})
        return answer.result

    def send(self, text: str, user_id: str | None = None) -> RoomReply:
        """Says something to the room's model and returns its reply, commands run and their outputs in it."""
        body = {"text": text} if user_id is None else {"text": text, "userId": user_id}
        return self._transport.call("POST", f"{self._route}/message", RoomReply, body=body, extra=None)

    def cleanup(self) -> RoomCleanup:
        """Empties the room and destroys its sandbox; the same id begins afresh. `errors` says what did not work."""
        return self._transport.call("DELETE", self._route, RoomCleanup)


class Rooms:
    """The rooms of the key's project."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, room_id: str) -> Room:
        """A handle on a room, whether it exists or not; no I/O."""
        return Room(self._transport, room_id)
