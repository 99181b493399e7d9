"""Owns what the log says of the console's sessions: who logged in, when, and that it is over; no I/O.

Called by control/console_sessions.py. Invariants: a session is known by its cookie's SHA-256, the cookie is in its
browser alone; the fold holds at most MAX_SESSIONS, none of them older than MAX_AGE_SECONDS.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kennel.domain.event import Event, trusted

STREAM = "/console-sessions"
OPENED, CLOSED = "key/session-opened", "key/session-closed"
MAX_SESSIONS = 4096
"""Kept at once; the oldest goes first."""
MAX_AGE_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Kept:
    """A session: the id of the key or join link that it began with, and when, in seconds since 1970."""

    holder: str
    began: float


Book = dict[str, Kept]


def evolve(book: Book, event: Event) -> Book:
    """The sessions, by hash, the oldest first, after one event; what is not stamped changes nothing. Works in place."""
    if not trusted(event):
        return book
    if event.type == OPENED:
        add(book, event.payload["sha256"], Kept(event.payload["holder"], _seconds(event.created_at)))
    elif event.type == CLOSED:
        book.pop(event.payload["sha256"], None)
    return book


def add(book: Book, sha256: str, kept: Kept) -> None:
    """Puts a new session last, and lets go of those that are too old or too many."""
    book[sha256] = kept
    for old, one in list(book.items()):
        if len(book) <= MAX_SESSIONS and kept.began - one.began <= MAX_AGE_SECONDS:
            return
        del book[old]


def _seconds(iso: str) -> float:
    return datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp()
