"""Owns who is logged in to the console: sessions in memory, each known by a random cookie whose SHA-256 alone is kept.

Called by the console's door and login page. Invariants: a session holds a key's id, never a key, so a revoked key ends
its sessions at their next request; sessions are bounded in number, in idle time and in age; logging out ends one.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_SESSIONS = 4096
"""Kept at once; the longest unused goes first."""
IDLE_SECONDS = 12 * 3600.0
MAX_AGE_SECONDS = 7 * 24 * 3600.0
MAX_NOTICES = 4


@dataclass(slots=True)
class Session:
    """One browser: whose key it came with (None where keys are off), its form token, what to tell it next."""

    key_id: str | None
    began: float
    seen: float
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    notices: list[str] = field(default_factory=list)

    def tell(self, notice: str) -> None:
        """Shows a sentence on the next page."""
        self.notices = [*self.notices, notice][-MAX_NOTICES:]

    def take_notices(self) -> list[str]:
        """What is to be shown, once."""
        told, self.notices = self.notices, []
        return told


class Sessions:
    """`Sessions()`; they last as long as this process."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, most: int = MAX_SESSIONS) -> None:
        self._clock, self._most = clock, most
        self._by_hash: OrderedDict[bytes, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_hash)

    def open(self, key_id: str | None) -> tuple[str, Session]:
        """A new session and the cookie's value."""
        now, cookie = self._clock(), secrets.token_urlsafe(32)
        session = Session(key_id, now, now)
        self._by_hash[_digest(cookie)] = session
        while len(self._by_hash) > self._most:
            self._by_hash.popitem(last=False)
        return cookie, session

    def find(self, cookie: str) -> Session | None:
        """The session of a cookie, None when there is none or its time is over; finding it counts as use."""
        digest, now = _digest(cookie), self._clock()
        session = self._by_hash.get(digest)
        if session is None:
            return None
        if now - session.seen > IDLE_SECONDS or now - session.began > MAX_AGE_SECONDS:
            del self._by_hash[digest]
            return None
        session.seen = now
        self._by_hash.move_to_end(digest)
        return session

    def close(self, cookie: str) -> None:
        """Ends a session; an unknown one is ended already."""
        self._by_hash.pop(_digest(cookie), None)


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).digest()
