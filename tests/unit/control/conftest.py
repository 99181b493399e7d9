"""A real log in a temporary file, and the services over it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kennel.adapters.sql.event_log import SqlEventLog, open_log


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def log(tmp_path: Path, anyio_backend: str) -> AsyncIterator[SqlEventLog]:
    """An open log."""
    opened = await open_log(f"sqlite:///{tmp_path}/log.db")
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture
async def second_log(log: SqlEventLog) -> AsyncIterator[SqlEventLog]:
    """The same log as another process has it."""
    opened = await open_log(log.engine.url.render_as_string(hide_password=False))
    try:
        yield opened
    finally:
        await opened.close()
