"""Owns how each database is opened: durability, locking, and the schema's migrations at start.

Called by `event_log.open_log`. Invariant: a SQLite writer's transaction begins with the write lock in hand
(BEGIN IMMEDIATE) and every commit is on disk when it returns; one migration runs at a time.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError

HEAD = "0001"
"""The newest migration, as a test has Alembic confirm; a database already there never imports Alembic."""
LOCK = 0x6B656E6E656C
"""PostgreSQL's advisory lock around every append and every migration ("kennel")."""
READERS = 4
BUSY_MS = 10_000
"""Milliseconds to wait for another process's write before the append is told that the log is not available."""
_POSTGRES = {
    "connect_timeout": 10,
    "tcp_user_timeout": 2 * BUSY_MS,
    # A process that froze inside a transaction gives the lock back before those who wait for it give up for good.
    "options": f"-c lock_timeout={BUSY_MS} -c idle_in_transaction_session_timeout={BUSY_MS}",
}


def _tune_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver's own BEGIN would take the write lock too late
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        f"busy_timeout={BUSY_MS}",
        "foreign_keys=ON",
        "cache_size=-16384",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_immediate(connection: Connection) -> None:
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        try:
            connection.connection.cursor().execute("BEGIN IMMEDIATE")
        except sqlite3.Error as fault:
            raise OperationalError("BEGIN IMMEDIATE", None, fault) from fault


def _private_file(database: str) -> None:
    """Creates the file readable by its owner alone; SQLite gives its -wal and -shm the same mode."""
    Path(database).parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def make_engine(url: str) -> Engine:
    """An engine for `sqlite:////abs/file.db` or `postgresql://…`; anything else is a ValueError."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise ValueError("the log needs a file: sqlite:////absolute/path.db")
        _private_file(parsed.database)
        engine = create_engine(parsed, pool_size=READERS + 2, connect_args={"check_same_thread": False})
        event.listen(engine, "connect", _tune_sqlite)
        event.listen(engine, "begin", _begin_immediate)
        return engine
    if parsed.get_backend_name() == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
        return create_engine(parsed, pool_size=READERS + 2, pool_pre_ping=True, connect_args=_POSTGRES)
    raise ValueError(f"the log is kept in SQLite or PostgreSQL, not in '{parsed.get_backend_name()}'")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def migrate(engine: Engine) -> None:
    """Brings the schema to HEAD; a database newer than this program is refused by Alembic."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        if _revision(connection) == HEAD:
            return
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def lost(fault: BaseException) -> bool:
    """Whether the database hung up, so that a new connection may do better."""
    return isinstance(fault, DBAPIError) and bool(fault.connection_invalidated)
