"""Owns join links: making, recognising, listing and revoking them, all on the installation's `/room-links` stream.

Called by the API's gate (authenticate) and the links routes. Invariants: a token is shown once and kept as its SHA-256;
a link is good for its room alone, until it is revoked, has run out, or the room is cleaned; whoever watches a room by a
link is cut off when it ends.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from kennel.control.room_book import RoomBook
from kennel.control.stream_fold import StreamFold
from kennel.domain import membership, room
from kennel.domain.event import fact
from kennel.domain.key import digest
from kennel.domain.membership import (
    LINK_CREATED,
    LINK_ID,
    LINK_REVOKED,
    LINKS,
    MAX_LINKS,
    Guest,
    LinkRing,
    LinkView,
    Role,
)
from kennel.domain.principal import Principal
from kennel.domain.stream_path import INSTALLATION
from kennel.wire.errors import KennelError, error

WAIT = 10.0
"""Seconds to wait for the own fold after an append; the log delivers before it answers, so this never runs out."""


class Links:
    """The join links of every room."""

    def __init__(self, book: RoomBook) -> None:
        self._book = book
        self._fold: StreamFold[LinkRing] = StreamFold(
            book.log, INSTALLATION, LINKS, LinkRing(), membership.evolve_links
        )

    async def create(
        self,
        who: Principal,
        project: str,
        room_id: str,
        *,
        role: Role,
        name: str,
        user_id: str | None,
        seconds: float | None,
    ) -> tuple[str, LinkView]:
        """A new link's token, shown this once, and its view; `seconds` None lasts until it is revoked.

        `user_id` pins who its holder is in the room. RESOURCE_BUSY when the room has MAX_LINKS.
        """
        await self._fold.ready()
        with self._book.use(project, room_id) as here:
            await self._book.refresh(here)
            if here.state.opened_at is None:
                await self._book.record(here, fact(who, room.OPENED, {"roomId": room_id}))
            epoch = here.state.cleanups
        await self._drop_dead(who, project, room_id, epoch)
        token, link = membership.PREFIX + secrets.token_urlsafe(32), LINK_ID + secrets.token_hex(10)
        payload = {
            "linkId": link, "project": project, "roomId": room_id, "epoch": epoch, "role": role, "name": name,
            "sha256": digest(token),
        }  # fmt: skip
        if user_id is not None:
            payload["userId"] = user_id
        if seconds is not None:
            until = datetime.fromtimestamp(time.time() + seconds, UTC)
            payload["expiresAt"] = until.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        await self._append(who, LINK_CREATED, payload)
        return token, self._fold.state.views[link]

    async def _drop_dead(self, who: Principal, project: str, room_id: str, epoch: int) -> None:
        """Revokes what a cleanup or time has ended, then refuses when there are too many."""
        ring = self._fold.state
        for link in list(ring.rooms.get((project, room_id), ())):
            guest = ring.guests[ring.hashes[link]]
            if guest.epoch != epoch or membership.expired(guest.expires_at, datetime.now(UTC)):
                await self._append(who, LINK_REVOKED, {"linkId": link})
        if len(ring.rooms.get((project, room_id), ())) >= MAX_LINKS:
            raise error("RESOURCE_BUSY", f"a room has at most {MAX_LINKS} links; revoke some", admitted="no")

    async def _append(self, who: Principal, type_: str, payload: dict[str, object]) -> None:
        [event] = await self._book.log.append(INSTALLATION, LINKS, [fact(who, type_, payload)])
        await self._fold.wait_until(event.offset, WAIT)

    async def authenticate(self, token: str) -> Guest:
        """Who holds this token; UNAUTHORIZED when it is unknown, revoked, run out, or of a room since cleaned."""
        await self._fold.ready()
        sha256 = digest(token[: membership.MAX_TOKEN + 1])
        guest = self._fold.state.guests.get(sha256)
        if guest is None or len(token) > membership.MAX_TOKEN or not self._in_force(guest, sha256):
            raise _refused()
        await self.check(guest)
        return guest

    async def holder(self, link_id: str) -> Guest:
        """Who holds the link of this id; UNAUTHORIZED once it is void. For sessions that began with its token."""
        await self._fold.ready()
        guest = self._fold.state.guests.get(self._fold.state.hashes.get(link_id, ""))
        if guest is None:
            raise _refused()
        await self.check(guest)
        return guest

    def _in_force(self, guest: Guest, sha256: str) -> bool:
        stored = self._fold.state.hashes.get(guest.key_id, "")
        return hmac.compare_digest(stored, sha256)

    async def check(self, guest: Guest) -> None:
        """UNAUTHORIZED when a link that was good is so no more."""
        if guest.key_id not in self._fold.state.hashes or membership.expired(guest.expires_at, datetime.now(UTC)):
            raise _refused()
        with self._book.use(str(guest.project), guest.room_id) as here:
            await self._book.refresh(here)
            if here.state.cleanups != guest.epoch:
                raise _refused()

    async def list(self, project: str, room_id: str) -> list[LinkView]:
        """The room's links that are in force, oldest first."""
        await self._fold.ready()
        with self._book.use(project, room_id) as here:
            await self._book.refresh(here)
            epoch = here.state.cleanups
        ring, now = self._fold.state, datetime.now(UTC)
        links = [(ring.guests[ring.hashes[link]], link) for link in ring.rooms.get((project, room_id), ())]
        good = [link for guest, link in links if guest.epoch == epoch and not membership.expired(guest.expires_at, now)]
        return [ring.views[link] for link in good]

    async def revoke(self, who: Principal, project: str, room_id: str, link_id: str | None) -> Sequence[str]:
        """Voids one link, or with None all of the room; their ids. NOT_FOUND for one that the room does not have."""
        await self._fold.ready()
        links = list(self._fold.state.rooms.get((project, room_id), ()))
        if link_id is not None and link_id not in links:
            raise error("NOT_FOUND", "this room has no such link")
        doomed = links if link_id is None else [link_id]
        for link in doomed:
            await self._append(who, LINK_REVOKED, {"linkId": link})
        if doomed:
            self._book.nudge(project, room_id)
        return doomed


def _refused() -> KennelError:
    return error("UNAUTHORIZED", "this link is unknown, revoked or has run out", hint="ask for a new join link")
