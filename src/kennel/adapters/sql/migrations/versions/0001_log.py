"""Makes the log's tables: streams, events, owed announcements, projection checkpoints."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _bytewise() -> sa.Text:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    _streams()
    _events()
    _owed()
    _checkpoints()


def _streams() -> None:
    op.create_table(
        "streams",
        sa.Column("project", _bytewise(), nullable=False),
        sa.Column("path", _bytewise(), nullable=False),
        sa.Column("stream_id", sa.String(36), nullable=False),
        sa.Column("head", sa.BigInteger, nullable=False),
        sa.Column("head_hash", sa.String(64), nullable=False),
        sa.Column("owes", sa.Integer, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("project", "path", name="pk_streams"),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column(
            "position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False, autoincrement=False
        ),
        sa.Column("project", _bytewise(), nullable=False),
        sa.Column("path", _bytewise(), nullable=False),
        sa.Column("offset", sa.BigInteger, nullable=False),
        sa.Column("type", _bytewise(), nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("idempotency_key", _bytewise(), nullable=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("position", name="pk_events"),
        sa.UniqueConstraint("project", "path", "offset", name="uq_events_offset"),
    )
    keyed = sa.text("idempotency_key IS NOT NULL")
    op.create_index(
        "uq_events_key",
        "events",
        ["project", "path", "idempotency_key"],
        unique=True,
        sqlite_where=keyed,
        postgresql_where=keyed,
    )


def _owed() -> None:
    op.create_table(
        "owed_announcements",
        sa.Column("project", _bytewise(), nullable=False),
        sa.Column("child", _bytewise(), nullable=False),
        sa.Column("ancestor", _bytewise(), nullable=False),
        sa.PrimaryKeyConstraint("project", "child", "ancestor", name="pk_owed_announcements"),
    )


def _checkpoints() -> None:
    op.create_table(
        "projection_checkpoints",
        sa.Column("project", _bytewise(), nullable=False),
        sa.Column("processor", _bytewise(), nullable=False),
        sa.Column("path", _bytewise(), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("offset", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("project", "processor", "path", name="pk_projection_checkpoints"),
    )


def downgrade() -> None:
    for name in ("projection_checkpoints", "owed_announcements", "events", "streams"):
        op.drop_table(name)
