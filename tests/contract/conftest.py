"""A log over each database: SQLite in a temporary file, and a real PostgreSQL that these tests start themselves."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kennel.adapters.sql.event_log import SqlEventLog, open_log


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


def _as_server(words: list[str], where: str) -> None:
    """Runs one of PostgreSQL's programs as a user it accepts: it refuses root."""
    user = "postgres" if os.getuid() == 0 else None
    done = subprocess.run(words, user=user, cwd=where, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server on a Unix socket, without the database's name; durable settings are PostgreSQL's defaults."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip("PostgreSQL's server binaries are not installed (Debian package postgresql)")
    where = tempfile.mkdtemp(prefix="kennel-pg-")
    try:
        if os.getuid() == 0:
            entry = pwd.getpwnam("postgres")
            os.chown(where, entry.pw_uid, entry.pw_gid)
        data, pg_ctl = f"{where}/data", str(binaries / "pg_ctl")
        _as_server([str(binaries / "initdb"), "-D", data, "-U", "kennel", "-A", "trust", "-E", "UTF8"], where)
        options = f"-c listen_addresses='' -c unix_socket_directories='{where}' -c shared_buffers=64MB"
        _as_server([pg_ctl, "-D", data, "-w", "-l", f"{where}/log", "-o", options, "start"], where)
        try:
            yield f"postgresql://kennel@/{{database}}?host={where}"
        finally:
            _as_server([pg_ctl, "-D", data, "-w", "-m", "immediate", "stop"], where)
    finally:
        shutil.rmtree(where)


@pytest.fixture(scope="session")
def postgres_log(postgres: str) -> str:
    """The URL of one database for all tests: making one takes ten times as long as emptying it."""
    import psycopg

    with psycopg.connect(postgres.format(database="postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE log")
    return postgres.format(database="log")


@pytest.fixture(params=["sqlite", "postgres"])
def log_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty log."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/log.db"
    import psycopg

    url: str = request.getfixturevalue("postgres_log")
    with psycopg.connect(url, autocommit=True) as connection:
        tables = [r[0] for r in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        for table in tables:
            if table != "alembic_version":
                connection.execute(f"TRUNCATE {table}")
    return url


@pytest.fixture
async def log(log_url: str, anyio_backend: str) -> AsyncIterator[SqlEventLog]:
    """An open log."""
    opened = await open_log(log_url)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(opened.close)
        yield opened
