"""Owns the fixtures of the console's tests."""

from __future__ import annotations

import pytest

from console_world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def new_world() -> type[World]:
    return World


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
