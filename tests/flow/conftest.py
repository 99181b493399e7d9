"""Owns the fixtures of flow tests that drive a guest without an installation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from guest_process import GuestProcess
from kennel.relay.link import GuestLink


@pytest.fixture(scope="module")
def process() -> Iterator[GuestProcess]:
    """A guest for all tests of a file; it must have had nothing to complain of."""
    made = GuestProcess()
    yield made
    complaints = made.complaints()
    made.close()
    assert complaints == ""


@pytest.fixture
async def guest(process: GuestProcess) -> AsyncIterator[GuestLink]:
    """A connection to it of the test's own."""
    link = await process.connect()
    yield link
    await link.close()
