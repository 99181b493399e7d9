"""Owns the writer's SQL: each statement written once with SQLAlchemy Core, compiled once, run on the bare driver.

Called by the ledger. Invariant: what a driver raises comes out as SQLAlchemy's errors. Going around Core's execution
saves about 25 µs a statement, 100 µs of an append that is alone in its transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Dialect, bindparam, delete, func, insert, literal_column, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.expression import ClauseElement

from kennel.adapters.sql import tables
from kennel.adapters.sql.rows import COLUMNS

_events, _streams, _owed = tables.events.c, tables.streams.c, tables.owed.c
_columns = [_events[name] for name in COLUMNS]
_this_stream = (_streams.project == bindparam("in_project"), _streams.path == bindparam("in_path"))


class Prepared:
    """One statement for one database."""

    def __init__(self, statement: ClauseElement, dialect: Dialect, column_keys: Sequence[str] | None = None) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=column_keys)
        self._sql = str(compiled)
        order = getattr(compiled, "positiontup", None)
        self._order: tuple[str, ...] | None = None if order is None else tuple(order)
        # SQLite's LIMIT is compiled with an OFFSET of its own, bound to a value that is there already.
        self._fixed = {name: value for name, value in compiled.params.items() if value is not None}
        self._dialect = dialect

    def _bound(self, values: dict[str, Any]) -> Any:
        if self._fixed:
            values = self._fixed | values
        return values if self._order is None else tuple(values[name] for name in self._order)

    def rows(self, connection: Connection, values: dict[str, Any]) -> list[Any]:
        """All rows of a query."""
        cursor = connection.connection.cursor()
        try:
            cursor.execute(self._sql, self._bound(values))
            return list(cursor.fetchall())
        except self._dialect.loaded_dbapi.Error as fault:
            raise self._translated(fault, connection) from fault
        finally:
            cursor.close()

    def run(self, connection: Connection, *values: dict[str, Any]) -> None:
        """Executes once per set of values."""
        cursor = connection.connection.cursor()
        try:
            if len(values) == 1:
                cursor.execute(self._sql, self._bound(values[0]))
            else:
                cursor.executemany(self._sql, [self._bound(one) for one in values])
        except self._dialect.loaded_dbapi.Error as fault:
            raise self._translated(fault, connection) from fault
        finally:
            cursor.close()

    def _translated(self, fault: Any, connection: Connection) -> BaseException:
        driver = connection.connection.dbapi_connection
        translated: BaseException = DBAPIError.instance(
            self._sql,
            None,
            fault,
            self._dialect.loaded_dbapi.Error,
            hide_parameters=True,
            connection_invalidated=self._dialect.is_disconnect(fault, driver, None),
            dialect=self._dialect,
        )
        return translated


class Statements:
    """Every statement of the writer, for one database."""

    def __init__(self, dialect: Dialect) -> None:
        def prepared(statement: ClauseElement) -> Prepared:
            return Prepared(statement, dialect)

        self.postgres = dialect.name == "postgresql"
        self.lock = prepared(text("SELECT pg_advisory_xact_lock(:lock)"))
        self.notify = prepared(text("SELECT pg_notify('kennel_log', :at)"))
        self.last = prepared(select(func.coalesce(func.max(_events.position), literal_column("0"))))
        self.since = prepared(
            select(*_columns)
            .where(_events.position > bindparam("since"))
            .order_by(_events.position)
            .limit(bindparam("page"))
        )
        self.stream = prepared(select(_streams.head, _streams.head_hash, _streams.owes).where(*_this_stream))
        self.keyed = prepared(
            select(*_columns).where(
                _events.project == bindparam("in_project"),
                _events.path == bindparam("in_path"),
                _events.idempotency_key == bindparam("in_key"),
            )
        )
        self.add_event = Prepared(insert(tables.events), dialect, COLUMNS)
        self.add_stream = Prepared(insert(tables.streams), dialect, [c.name for c in tables.streams.c])
        self.move_head = prepared(
            update(tables.streams)
            .where(*_this_stream)
            .values(head=bindparam("new_head"), head_hash=bindparam("new_hash"))
        )
        self.set_owes = prepared(update(tables.streams).where(*_this_stream).values(owes=bindparam("new_owes")))
        self._debts(dialect)

    def _debts(self, dialect: Dialect) -> None:
        this_child = (_owed.project == bindparam("in_project"), _owed.child == bindparam("in_child"))
        self.debts = Prepared(select(_owed.ancestor).where(*this_child), dialect)
        self.add_debt = Prepared(insert(tables.owed), dialect, [c.name for c in tables.owed.c])
        self.settle = Prepared(
            delete(tables.owed).where(*this_child, _owed.ancestor == bindparam("in_ancestor")), dialect
        )
        self.debtors = Prepared(select(_owed.project, _owed.child).distinct().limit(bindparam("page")), dialect)
