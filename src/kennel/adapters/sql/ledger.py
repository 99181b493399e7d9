"""Owns one transaction of the log: a group of appends planned, inserted, and their births announced.

Called by the writer's thread alone. Invariant: all of a group commits in one transaction under the log's lock; a
refused append costs its group nothing, and a sick ancestor costs a newborn nothing but a debt that is kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import Connection, NestedTransaction
from sqlalchemy.exc import IntegrityError

from kennel.adapters.sql.engine import LOCK
from kennel.adapters.sql.rows import to_event, to_values
from kennel.adapters.sql.statements import Prepared, Statements
from kennel.domain.admission import Draft, admit
from kennel.domain.append import NOTHING, Head, Row, announcement, plan
from kennel.domain.event import Event
from kennel.domain.stream_path import ancestors
from kennel.wire.errors import KennelError

Address = tuple[str, str]
"""(project, path)."""


class Stream(msgspec.Struct, frozen=True):
    """What the writer remembers of a stream: where it ends, and whether an ancestor still waits to hear of it."""

    head: Head = NOTHING
    owes: bool = False


PAGE = 1000


class Ledger:
    """What a transaction may ask of the tables, over one writing connection."""

    def __init__(self, connection: Connection, statements: Statements) -> None:
        self._connection, self.sql = connection, statements

    def rows(self, statement: Prepared, **values: Any) -> list[Any]:
        """All rows of a query."""
        return statement.rows(self._connection, values)

    def run(self, statement: Prepared, *values: dict[str, Any]) -> None:
        """Executes once per set of values."""
        statement.run(self._connection, *values)

    def savepoint(self) -> NestedTransaction:
        """A part of the transaction that can be taken back alone."""
        return self._connection.begin_nested()

    def lock(self) -> None:
        """Waits for PostgreSQL's log lock; SQLite's transaction already began with its write lock."""
        if self.sql.postgres:
            self.rows(self.sql.lock, lock=LOCK)

    def notify(self, position: int) -> None:
        """Rings for other processes once this transaction commits; only PostgreSQL can."""
        if self.sql.postgres:
            self.rows(self.sql.notify, at=str(position))

    def last_position(self) -> int:
        """The position of the newest event, 0 in an empty log."""
        return int(self.rows(self.sql.last)[0][0])

    def events_since(self, position: int) -> list[Event]:
        """Up to PAGE events after `position`, in order; positions have no holes, so a short page is the end."""
        return [to_event(row) for row in self.rows(self.sql.since, since=position, page=PAGE)]

    def debtors(self) -> list[Address]:
        """Streams some ancestor of which has not been told of them."""
        return [(row[0], row[1]) for row in self.rows(self.sql.debtors, page=PAGE)]


class Group:
    """The appends of one transaction."""

    def __init__(self, ledger: Ledger, position: int, known: Mapping[Address, Stream], now: str) -> None:
        self._ledger, self._sql, self._known, self._now = ledger, ledger.sql, known, now
        self.position = position
        self.touched: dict[Address, Stream] = {}
        self.committed: list[Event] = []
        self._rows: list[Row] = []
        self._new: list[Address] = []
        self._ids: dict[Address, str] = {}
        self._keys: dict[tuple[str, str, str], Event] = {}

    def stream(self, address: Address) -> Stream:
        """What is known of a stream, from this group, from before, or from the table."""
        found = self.touched.get(address) or self._known.get(address)
        if found is None:
            rows = self._ledger.rows(self._sql.stream, in_project=address[0], in_path=address[1])
            found = Stream(Head(rows[0][0], rows[0][1]), bool(rows[0][2])) if rows else Stream()
            self.touched[address] = found
        return found

    def _existing(self, address: Address, drafts: Sequence[Draft]) -> dict[str, Event]:
        """Events already under the drafts' keys, in the table or earlier in this group."""
        found: dict[str, Event] = {}
        for key in {d.key for d in drafts if d.key is not None}:
            if (*address, key) in self._keys:
                found[key] = self._keys[(*address, key)]
            elif self.stream(address).head.offset:
                rows = self._ledger.rows(self._sql.keyed, in_project=address[0], in_path=address[1], in_key=key)
                if rows:
                    found[key] = to_event(rows[0])
        return found

    def append(self, address: Address, drafts: Sequence[Draft], *, fresh: bool = False) -> list[Event]:
        """Plans one batch on top of what this group already holds; `fresh` says that no key can be known yet."""
        stream = self.stream(address)
        made = plan(
            *address,
            drafts,
            head=stream.head,
            existing={} if fresh else self._existing(address, drafts),
            position=self.position,
            now=self._now,
            stream_id=str(uuid.uuid4()),
        )
        if made.born:
            self._new.append(address)
            self._ids[address] = made.rows[0].event.payload["streamId"]
        self.position += len(made.rows)
        self._rows += made.rows
        self.touched[address] = Stream(made.head, stream.owes)
        for row in made.rows:
            if row.event.idempotency_key is not None:
                self._keys[(*address, row.event.idempotency_key)] = row.event
        return made.answer

    def flush(self) -> list[Address]:
        """Writes what was planned since the last flush; returns the streams born in it."""
        rows, born = self._rows, self._new
        self._rows, self._new = [], []
        if rows:
            self._ledger.run(self._sql.add_event, *(to_values(row) for row in rows))
            moved = {(row.event.project, row.event.path): row.event for row in rows}
            if born:
                self._ledger.run(self._sql.add_stream, *(self._birth(address, moved.pop(address)) for address in born))
            if moved:
                heads = [
                    {"in_project": a[0], "in_path": a[1], "new_head": e.offset, "new_hash": e.hash}
                    for a, e in moved.items()
                ]
                self._ledger.run(self._sql.move_head, *heads)
        self.committed += [row.event for row in rows]
        return born

    def _birth(self, address: Address, last: Event) -> dict[str, Any]:
        return {
            "project": address[0],
            "path": address[1],
            "stream_id": self._ids[address],
            "head": last.offset,
            "head_hash": last.hash,
            "owes": 0,
            "created_at": self._now,
        }

    def _attempt(self, work: Callable[[], object]) -> bool:
        """Does `work` in a savepoint; False, and nothing of it remains, when the log or the table refuses it."""
        mark = (self.position, dict(self.touched), len(self.committed), dict(self._keys))
        try:
            with self._ledger.savepoint():
                work()
                self.flush()
        except (IntegrityError, KennelError):
            self.position, self.touched, self._keys = mark[0], mark[1], mark[3]
            del self.committed[mark[2] :]
            self._rows, self._new = [], []
            return False
        return True

    def _tell(self, ancestor: Address, child: str, *, fresh: bool) -> None:
        """Announces `child` to one ancestor; an ancestor born by it is announced to its own ancestors first."""
        newborn = self.stream(ancestor).head.offset == 0
        self.append(ancestor, admit([announcement(child)]), fresh=fresh)
        if newborn:
            for upper in ancestors(ancestor[1]):
                self._tell((ancestor[0], upper), ancestor[1], fresh=True)

    def announce(self, born: Sequence[Address]) -> None:
        """Tells every ancestor of every newborn, root first; what cannot land stays owed."""
        wanted = [(project, path, upper) for project, path in born for upper in ancestors(path)]
        if not wanted:
            return

        def all_at_once() -> None:
            for project, path, upper in wanted:
                self._tell((project, upper), path, fresh=True)

        if not self._attempt(all_at_once):
            for project, path, upper in wanted:
                if not self._attempt(partial(self._tell, (project, upper), path, fresh=False)):
                    self._owe(project, path, upper)

    def _owe(self, project: str, child: str, ancestor: str) -> None:
        self._ledger.run(self._sql.add_debt, {"project": project, "child": child, "ancestor": ancestor})
        self._ledger.run(self._sql.set_owes, {"in_project": project, "in_path": child, "new_owes": 1})
        self.touched[(project, child)] = Stream(self.stream((project, child)).head, True)

    def settle(self, child: Address) -> None:
        """Tries again to tell the ancestors that `child` still owes."""
        where = {"in_project": child[0], "in_child": child[1]}
        debts = sorted(row[0] for row in self._ledger.rows(self._sql.debts, **where))
        left = 0
        for ancestor in debts:
            if self._attempt(partial(self._tell, (child[0], ancestor), child[1], fresh=False)):
                self._ledger.run(self._sql.settle, {**where, "in_ancestor": ancestor})
            else:
                left += 1
        if not left:
            self._ledger.run(self._sql.set_owes, {"in_project": child[0], "in_path": child[1], "new_owes": 0})
            self.touched[child] = Stream(self.stream(child).head, False)
