"""Lets Alembic run on the connection that `kennel.adapters.sql.engine` hands it; there is no other way to call it."""

from __future__ import annotations

from alembic import context

from kennel.adapters.sql.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transaction_per_migration=False,
)
context.run_migrations()
