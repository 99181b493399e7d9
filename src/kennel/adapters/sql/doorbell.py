"""Owns the news that another process wrote to the log: PostgreSQL's notifications, and a slow poll beside them.

Called by `event_log.SqlEventLog`. Invariant: a ring carries no events; the writer's thread then reads from its own
position, so a lost ring only delays, by at most POLL seconds.
"""

from __future__ import annotations

import logging
import select
import socket
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
        self._end, self._ended = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="kennel-log-doorbell", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._end.close()
        self._thread.join()
        self._ended.close()

    def _wait(self, *files: int) -> bool:
        """Waits POLL seconds, or until one of `files` has something to read; False when it is time to end."""
        poll = select.poll()
        for file in (self._ended.fileno(), *files):
            poll.register(file, select.POLLIN)
        return self._ended.fileno() not in {file for file, _ in poll.poll(POLL * 1000)}

    def _run(self) -> None:
        if self._url is None:
            while self._wait():
                self._ring(None)
        else:
            while self._listen(self._url):
                log.info("listening for the log's notifications again")

    def _listen(self, url: URL) -> bool:
        """Rings for each notification until the connection fails; False when it is time to end."""
        import psycopg  # only where PostgreSQL is used

        words = url.set(drivername="postgresql").render_as_string(hide_password=False)
        try:
            with psycopg.connect(words, autocommit=True, connect_timeout=10) as connection:
                connection.execute("LISTEN kennel_log")
                self._ring(None)
                while self._wait(connection.fileno()):
                    newest = max((int(notice.payload) for notice in connection.notifies(timeout=0)), default=None)
                    self._ring(newest)
                return False
        except (psycopg.Error, OSError):
            log.warning("the log's notifications were interrupted", exc_info=True)
            return self._wait()
