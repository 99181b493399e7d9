"""Owns who is in a room: joining with a role, signs of life, leaving.

Called by the members routes. Invariants: a role is on the log, a sign of life in memory alone; looking at members
writes nothing; a room has at most MAX_MEMBERS.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from kennel.control.room_book import Room, RoomBook
from kennel.domain import membership
from kennel.domain.event import fact
from kennel.domain.membership import MAX_MEMBERS, MemberView, Role
from kennel.domain.principal import Principal
from kennel.wire.errors import error

PRESENT_SECONDS = 60.0
"""How long a sign of life lasts unless it asks for another time."""


class Members:
    """The members of every room."""

    def __init__(self, book: RoomBook) -> None:
        self._book = book

    async def join(
        self,
        who: Principal,
        project: str,
        room_id: str,
        user_id: str,
        *,
        role: Role | None,
        newcomer: Role,
        may_change: bool,
        seconds: float | None,
    ) -> MemberView:
        """Makes somebody a member or gives a sign of life, which lasts `seconds`.

        A member's role stays unless `role` says another, a new one has `newcomer` unless `role` says otherwise; both
        take `may_change`, else FORBIDDEN. RESOURCE_BUSY when the room is full.
        """
        with self._book.use(project, room_id) as here:
            await self._book.refresh(here)
            known = here.state.members.get(user_id)
            settled: Role = known.role if known else newcomer
            wanted = role or settled
            if wanted != settled and not may_change:
                raise error("FORBIDDEN", "this key or link cannot give that role", admitted="no")
            if known is None and len(here.state.members) >= MAX_MEMBERS:
                raise error("RESOURCE_BUSY", f"a room has at most {MAX_MEMBERS} members", admitted="no")
            if known is None or known.role != wanted:
                payload = {"userId": user_id, "role": wanted}
                await self._book.record_open(here, who, fact(who, membership.JOINED, payload))
            self._forget_old(here)
            news = user_id not in here.seen or known is None or known.role != wanted
            here.seen[user_id] = time.monotonic() + (PRESENT_SECONDS if seconds is None else seconds)
            view = self._view(here, user_id)
            if news:  # a sign of life every few seconds from each of many is nobody's news
                self._book.show(here, "presence", {"userId": user_id, "role": wanted, "present": True})
            return view

    async def list(self, project: str, room_id: str) -> list[MemberView]:
        """The members, in the order they joined."""
        with self._book.use(project, room_id) as here:
            await self._book.refresh(here)
            self._forget_old(here)
            return [self._view(here, user_id) for user_id in here.state.members]

    async def leave(self, who: Principal, project: str, room_id: str, user_id: str) -> None:
        """Ends a membership; nothing happens when there is none."""
        with self._book.use(project, room_id) as here:
            await self._book.refresh(here)
            here.seen.pop(user_id, None)
            if user_id in here.state.members:
                await self._book.record(here, fact(who, membership.LEFT, {"userId": user_id}))
                self._book.show(here, "presence", {"userId": user_id, "present": False})

    @staticmethod
    def _forget_old(here: Room) -> None:
        now = time.monotonic()
        here.seen = {user: until for user, until in here.seen.items() if until > now and user in here.state.members}

    @staticmethod
    def _view(here: Room, user_id: str) -> MemberView:
        member, until = here.state.members[user_id], here.seen.get(user_id)
        left = None if until is None else until - time.monotonic()
        gone = None if left is None or left <= 0 else datetime.fromtimestamp(time.time() + left, UTC)
        return MemberView(
            user_id=user_id,
            role=member.role,
            joined_at=member.joined_at,
            present=gone is not None,
            present_until=None if gone is None else gone.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        )
