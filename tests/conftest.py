"""Owns the fixtures that every test of the running system shares."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from installation import Installation, make_installation
from kennel import Kennel

# A shell without job control starts `… &` with SIGINT ignored, and so would be everything that is interrupted here.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    """The shared installation: tests name their own sandboxes and leave no trace in others'."""
    yield from make_installation(prepared=False)


@pytest.fixture
def own_installation() -> Iterator[Installation]:
    """An installation for one test that kills or fills it."""
    yield from make_installation(warm_pool="0")


@pytest.fixture
def itx(installation: Installation) -> Iterator[Kennel]:
    with installation.client() as client:
        yield client
