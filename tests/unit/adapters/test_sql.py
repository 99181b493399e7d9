"""The schema and the way a database is opened."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from kennel.adapters.sql import engine as engines
from kennel.adapters.sql.tables import metadata


@pytest.fixture
def engine(tmp_path):
    engine = engines.make_engine(f"sqlite:///{tmp_path}/deep/log.db")
    engines.migrate(engine)
    yield engine
    engine.dispose()


def test_the_newest_migration_is_the_one_named():
    config = Config()
    config.set_main_option("script_location", str(Path(engines.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_heads() == [engines.HEAD]


def test_migrations_make_exactly_the_tables(engine):
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        names = {i["name"] for i in inspect(connection).get_indexes("events")}
        assert "uq_events_key" in names


def test_migrating_twice_changes_nothing(engine):
    engines.migrate(engine)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM alembic_version")).scalar() == 1


def test_every_commit_is_on_disk(engine):
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 10000


def test_the_file_is_its_owners_alone(engine, tmp_path):
    for name in ("log.db", "log.db-wal", "log.db-shm"):
        assert stat.S_IMODE((tmp_path / "deep" / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://x/y"])
def test_other_databases_are_refused(url):
    with pytest.raises(ValueError, match="log"):
        engines.make_engine(url)
