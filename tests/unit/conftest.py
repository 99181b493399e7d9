"""Owns what all tests of rules share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _little_to_collect() -> Iterator[None]:
    """What a module leaves is not looked at again: collections took up to 20 s each after 3,000 tests."""
    yield
    gc.collect()
    gc.freeze()
