"""Owns the news that another process wrote to the log: PostgreSQL's notifications, and a slow poll beside them.

Called by `event_log.SqlEventLog`. Invariant: a ring carries no events; the writer's thread then reads from its own
position, so a lost ring only delays, by at most POLL seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sqlalchemy import URL

log = logging.getLogger(__name__)

POLL = 1.0
"""Seconds between looks when nothing rings."""

Ring = Callable[[int | None], None]
"""Told the position that was written, or None when it is only time to look."""


class Doorbell:
    """A thread that waits for other processes' appends; `url` is None where the database cannot notify."""

    def __init__(self, url: URL | None, ring: Ring) -> None:
        self._url, self._ring = url, ring
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kennel-log-doorbell", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, within POLL seconds."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            if self._url is None:
                if not self._closing.wait(POLL):
                    self._ring(None)
            else:
                self._listen(self._url)

    def _listen(self, url: URL) -> None:
        import psycopg  # only where PostgreSQL is used

        words = url.set(drivername="postgresql").render_as_string(hide_password=False)
        try:
            with psycopg.connect(words, autocommit=True, connect_timeout=10) as connection:
                connection.execute("LISTEN kennel_log")
                while not self._closing.is_set():
                    for notice in connection.notifies(timeout=POLL):
                        self._ring(int(notice.payload))
                        if self._closing.is_set():
                            return
                    self._ring(None)
        except (psycopg.Error, OSError):
            log.warning("the log's notifications were interrupted", exc_info=True)
            self._closing.wait(POLL)
