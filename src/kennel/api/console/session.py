"""Owns who is logged in to the console: sessions, each known by a random cookie whose SHA-256 alone is kept.

Called by the console's door and login page. Invariants: a session holds the id of a key or join link, never its token,
so a revoked one ends its sessions; the book of sessions outlasts this process and has the last word; sessions are
bounded in number, in idle time and in age; logging out ends one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from kennel.api.services import SessionBook
from kennel.domain.console_session import MAX_AGE_SECONDS, MAX_SESSIONS, Book, Kept, add
from kennel.domain.principal import SYSTEM, Principal

IDLE_SECONDS = 12 * 3600.0
MAX_NOTICES = 4


@dataclass(slots=True)
class Session:
    """One browser: whose key or link it came with (None where keys are off), its form token, what to tell it next."""

    key_id: str | None
    began: float
    seen: float
    form_token: str
    notices: list[str] = field(default_factory=list)

    def tell(self, notice: str) -> None:
        """Shows a sentence on the next page."""
        self.notices = [*self.notices, notice][-MAX_NOTICES:]

    def take_notices(self) -> list[str]:
        """What is to be shown, once."""
        told, self.notices = self.notices, []
        return told


class Forgetful:
    """A book of sessions for where no log is: they last as long as this process."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._kept = now, Book()

    async def open(self, who: Principal, sha256: str) -> None:
        """Keeps one."""
        add(self._kept, sha256, Kept(who.key_id, self._now()))

    async def find(self, sha256: str) -> Kept | None:
        """One that is kept."""
        return self._kept.get(sha256)

    async def close(self, who: Principal, sha256: str) -> None:
        """Ends one."""
        self._kept.pop(sha256, None)


class Sessions:
    """`Sessions(book)`; without a book they last as long as this process. What is in memory alone is when a session was
    last used, which a restart counts as one use, and what it is to be told."""

    def __init__(self, book: SessionBook | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._book = book or Forgetful(clock)
        self._seen: OrderedDict[str, Session] = OrderedDict()

    async def open(self, who: Principal) -> tuple[str, Session]:
        """A new session and the cookie's value."""
        cookie = secrets.token_urlsafe(32)
        await self._book.open(who, _digest(cookie))
        found = await self.find(cookie)
        assert found is not None
        return cookie, found

    async def find(self, cookie: str, *, used: bool = True) -> Session | None:
        """The session of a cookie, None when there is none or its time is over; finding it counts as use."""
        digest, now = _digest(cookie), self._clock()
        kept = await self._book.find(digest)
        if kept is None:
            self._seen.pop(digest, None)
            return None
        session = self._seen.get(digest) or Session(kept.holder, kept.began, now, _form_token(cookie))
        if now - session.seen > IDLE_SECONDS or now - session.began > MAX_AGE_SECONDS:
            await self.close(cookie)
            return None
        if used:
            session.seen = now
        self._seen[digest] = session
        self._seen.move_to_end(digest)
        while len(self._seen) > MAX_SESSIONS:
            self._seen.popitem(last=False)
        return session

    async def close(self, cookie: str, who: Principal = SYSTEM) -> None:
        """Ends a session; an unknown one is ended already."""
        digest = _digest(cookie)
        self._seen.pop(digest, None)
        await self._book.close(who, digest)


def everybody() -> Session:
    """The one session of all browsers where keys are off."""
    now = time.time()
    return Session(None, now, now, secrets.token_urlsafe(32))


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).hexdigest()


def _form_token(cookie: str) -> str:
    """The session's form token; it is made of the cookie, so that it need not be kept, and says nothing of it."""
    found = hmac.digest(cookie.encode("utf-8", "surrogatepass"), b"kennel console form", "sha256")
    return base64.urlsafe_b64encode(found).decode().rstrip("=")
