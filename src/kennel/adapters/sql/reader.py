"""Owns the log's queries, each one SELECT on a connection of its own.

Called by `event_log.SqlEventLog` on its reading threads. Invariant: a read never waits for the writer and never
creates anything; an unknown stream is STREAM_NOT_FOUND.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from sqlalchemy import Connection, Engine, delete, func, insert, or_, select

from kennel.adapters.sql import tables
from kennel.adapters.sql.rows import COLUMNS, to_event, to_link
from kennel.domain.chain import TRIMMED, Fault, Link, verify
from kennel.domain.event import Event
from kennel.ports.event_log import Checkpoint
from kennel.wire.errors import error

MAX_LIMIT = 500
"""Events or paths in one answer."""
_columns = [tables.events.c[name] for name in COLUMNS]


class Reader:
    """Blocking reads; every method is safe to call from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._writing = engine

    def head(self, project: str, path: str) -> tuple[int, str] | None:
        """The stream's last offset and hash, or None."""
        query = select(tables.streams.c.head, tables.streams.c.head_hash).where(
            tables.streams.c.project == project, tables.streams.c.path == path
        )
        with self._engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else (int(row[0]), str(row[1]))

    def read(
        self, project: str, path: str, after: int, before: int | None, types: Sequence[str] | None, limit: int
    ) -> list[Event]:
        """One page of a stream, oldest first."""
        query = (
            select(*_columns)
            .where(tables.events.c.project == project, tables.events.c.path == path, tables.events.c.offset > after)
            .order_by(tables.events.c.offset)
            .limit(max(1, min(limit, MAX_LIMIT)))
        )
        if before is not None:
            query = query.where(tables.events.c.offset < before)
        if types is not None:
            query = query.where(tables.events.c.type.in_(list(types)))
        with self._engine.connect() as connection:
            found = [to_event(row) for row in connection.execute(query)]
        if not found and self.head(project, path) is None:
            raise error("STREAM_NOT_FOUND", f"there is no stream '{path}'")
        return found

    def by_key(self, project: str, path: str, key: str) -> Event | None:
        """The event under a key, or None."""
        query = select(*_columns).where(
            tables.events.c.project == project, tables.events.c.path == path, tables.events.c.idempotency_key == key
        )
        with self._engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else to_event(row)

    def paths(self, project: str, prefix: str, after: str, limit: int) -> list[str]:
        """Streams at or below `prefix`, in byte order."""
        below = prefix if prefix.endswith("/") else prefix + "/"
        # '0' is the character after '/': everything below sorts before it
        query = (
            select(tables.streams.c.path)
            .where(
                tables.streams.c.project == project,
                or_(
                    tables.streams.c.path == prefix,
                    (tables.streams.c.path >= below) & (tables.streams.c.path < below[:-1] + "0"),
                ),
                tables.streams.c.path > after,
            )
            .order_by(tables.streams.c.path)
            .limit(max(1, min(limit, MAX_LIMIT)))
        )
        with self._engine.connect() as connection:
            return [str(row[0]) for row in connection.execute(query)]

    def verify(self, project: str, path: str) -> list[Fault]:
        """The stream's faults against its chain, from one snapshot of the database."""
        with self._engine.connect() as connection:
            head = connection.execute(
                select(tables.streams.c.head, tables.streams.c.head_hash).where(
                    tables.streams.c.project == project, tables.streams.c.path == path
                )
            ).first()
            if head is None:
                raise error("STREAM_NOT_FOUND", f"there is no stream '{path}'")
            # appends that land meanwhile lie past the recorded head and are left out
            links, end = self._links(connection, project, path, head[0]), (head[0], head[1])
            return list(verify(links, end, (project, path), self._base(connection, project, path)))

    def _base(self, connection: Connection, project: str, path: str) -> tuple[int, str] | None:
        """Up to where the stream was trimmed, and with which hash, as it says itself; None when it begins at 1."""
        c = tables.events.c
        here = (c.project == project, c.path == path)
        first = connection.execute(select(func.min(c.offset)).where(*here)).scalar()
        if first is None or first == 1:
            return None
        said = connection.execute(select(c.payload).where(*here, c.type == TRIMMED).order_by(c.offset.desc()))
        for row in said:
            payload = msgspec.json.decode(row[0])
            if payload["through"] == first - 1:
                return first - 1, str(payload["digest"])
        return None

    def trim(self, project: str, path: str, through: int) -> int:
        """Deletes the events up to an offset, in one transaction; never the stream's last one."""
        c = tables.events.c
        with self._writing.begin() as connection:
            kept = select(func.max(c.offset)).where(c.project == project, c.path == path).scalar_subquery()
            done = connection.execute(
                delete(tables.events).where(c.project == project, c.path == path, c.offset <= through, c.offset < kept)
            )
            return int(done.rowcount)

    def _links(self, connection: Connection, project: str, path: str, last: int) -> Iterator[tuple[Link, str]]:
        at = 0
        while True:
            page = connection.execute(
                select(*_columns)
                .where(
                    tables.events.c.project == project,
                    tables.events.c.path == path,
                    tables.events.c.offset > at,
                    tables.events.c.offset <= last,
                )
                .order_by(tables.events.c.offset)
                .limit(1000)
            ).all()
            for row in page:
                at = int(row[3])
                yield to_link(row)
            if len(page) < 1000:
                return

    def checkpoints(self, project: str, processor: str, paths: Sequence[str] | None) -> list[Checkpoint]:
        """Saved fold states."""
        c = tables.checkpoints.c
        query = select(c.path, c.version, c.offset, c.state).where(c.project == project, c.processor == processor)
        if paths is not None:
            query = query.where(c.path.in_(list(paths)))
        with self._engine.connect() as connection:
            return [Checkpoint(str(r[0]), int(r[1]), int(r[2]), str(r[3])) for r in connection.execute(query)]

    def save_checkpoints(self, project: str, processor: str, states: Sequence[Checkpoint]) -> None:
        """Replaces saved states, in one transaction."""
        c = tables.checkpoints.c
        values = [
            {"project": project, "processor": processor, "path": s.path, "version": s.version, "offset": s.offset,
             "state": s.state}
            for s in states
        ]  # fmt: skip
        with self._writing.begin() as connection:
            connection.execute(
                delete(tables.checkpoints).where(
                    c.project == project, c.processor == processor, c.path.in_([s.path for s in states])
                )
            )
            connection.execute(insert(tables.checkpoints), values)
