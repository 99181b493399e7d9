"""Owns the tables of the log, one definition for SQLite and PostgreSQL; Alembic's history builds exactly these.

Read by the writer and the reader of this folder. Invariant: `events` is append-only and in its final form; positions
and offsets are given out by the writer under its lock, never by the database, so neither has holes.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()

_Position = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite makes only an INTEGER primary key the row's own address."""


def _bytewise() -> Text:
    """Text that both databases compare and sort byte by byte, whatever the server's locale."""
    return Text().with_variant(Text(collation="C"), "postgresql")


streams = Table(
    "streams",
    metadata,
    Column("project", _bytewise(), nullable=False),
    Column("path", _bytewise(), nullable=False),
    Column("stream_id", String(36), nullable=False),
    Column("head", BigInteger, nullable=False),
    Column("head_hash", String(64), nullable=False),
    Column("owes", Integer, nullable=False, default=0),
    Column("created_at", String(32), nullable=False),
    PrimaryKeyConstraint("project", "path", name="pk_streams"),
)
"""`owes` is 1 while an ancestor of the stream has not been told of it."""

events = Table(
    "events",
    metadata,
    Column("position", _Position, nullable=False, autoincrement=False),
    Column("project", _bytewise(), nullable=False),
    Column("path", _bytewise(), nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("type", _bytewise(), nullable=False),
    Column("payload", Text, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("idempotency_key", _bytewise(), nullable=True),
    Column("source", Text, nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("hash", String(64), nullable=False),
    PrimaryKeyConstraint("position", name="pk_events"),
    UniqueConstraint("project", "path", "offset", name="uq_events_offset"),
    Index(
        "uq_events_key",
        "project",
        "path",
        "idempotency_key",
        unique=True,
        sqlite_where=text("idempotency_key IS NOT NULL"),
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
)

owed = Table(
    "owed_announcements",
    metadata,
    Column("project", _bytewise(), nullable=False),
    Column("child", _bytewise(), nullable=False),
    Column("ancestor", _bytewise(), nullable=False),
    PrimaryKeyConstraint("project", "child", "ancestor", name="pk_owed_announcements"),
)

checkpoints = Table(
    "projection_checkpoints",
    metadata,
    Column("project", _bytewise(), nullable=False),
    Column("processor", _bytewise(), nullable=False),
    Column("path", _bytewise(), nullable=False),
    Column("version", Integer, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    PrimaryKeyConstraint("project", "processor", "path", name="pk_projection_checkpoints"),
)
