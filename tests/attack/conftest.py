"""Sandboxes to attack: every escape test runs against a bare runc bundle and against a real installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from bundle import Bundle  # noqa: E402  the folder is no package
from pet import Pet  # noqa: E402
from walls import Walls  # noqa: E402


def _able() -> None:
    if os.geteuid() != 0 or shutil.which("runc") is None:
        pytest.skip("needs root and runc")


@pytest.fixture(scope="session")
def bundle() -> Iterator[Bundle]:
    _able()
    with Bundle() as made:
        yield made


@pytest.fixture(scope="session")
def pet(installation: Any) -> Iterator[Pet]:
    """A sandbox of the installation that tests/conftest.py started."""
    with installation.client() as client:
        sandbox = client.sandboxes.get("/sandboxes/attacker").create()
        yield Pet(sandbox, installation.data)
        sandbox.destroy()


@pytest.fixture(scope="session", params=["bundle", "kennel"])
def walls(request: pytest.FixtureRequest) -> Walls:
    """A sandbox, made both ways."""
    return request.getfixturevalue("bundle" if request.param == "bundle" else "pet")


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """probe.c as a static program."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    made = tmp_path_factory.mktemp("probe") / "probe"
    words = ["gcc", "-static", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(made), str(HERE / "probe.c")]
    subprocess.run(words, check=True, capture_output=True)
    return made.read_bytes()
