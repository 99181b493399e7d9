"""Owns the fixtures of egress tests: one world and one gateway for a module, a sandbox and a project for each test."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from egress_gateway import GatewayProcess, Sandbox
from egress_world import World

_numbers = itertools.count(1)


class Desk:
    """What a test has at hand: the world, the gateway, its own project, and its own sandbox."""

    def __init__(self, world: World, gateway: GatewayProcess) -> None:
        self.world, self.gateway, self.control = world, gateway, gateway.control
        number = next(_numbers)
        self.project = f"project-{os.getpid()}-{number}"
        self.policy()
        self.box = self.another()

    def another(self, **words: Any) -> Sandbox:
        """One more sandbox, in this test's project unless told otherwise."""
        return self.gateway.sandbox(f"sandbox{next(_numbers):08d}", **{"project": self.project, **words})

    def policy(self, *rules: dict[str, Any], **words: Any) -> None:
        self.control.policy(*rules, project=self.project, **words)

    def secret(self, path: str, material: Any, *origins: str, **pin: Any) -> None:
        self.control.secret(path, material, *origins, project=self.project, **pin)

    def decision(self, **words: Any) -> Any:
        """The first decision of this project that has these words, once it is on the log."""
        return self.control.wait_for(lambda: next(iter(self.control.decisions(project=self.project, **words)), None), 5)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    if os.geteuid() != 0:
        pytest.skip("needs root: namespaces are real here")
    with tempfile.TemporaryDirectory(prefix="kennel-egress-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        made = World(Path(folder))
        yield made
        made.close()


@pytest.fixture(scope="module")
def gateway(world: World) -> Iterator[GatewayProcess]:
    folder = world.folder / "gw"
    folder.mkdir()
    made = GatewayProcess(world, folder)
    yield made
    made.close()
    log = made.log.read_text()
    assert "Traceback" not in log, log


@pytest.fixture
def start(world: World) -> Iterator[Callable[..., GatewayProcess]]:
    """Starts further gateways with options of their own."""
    made: list[GatewayProcess] = []

    def begin(**options: Any) -> GatewayProcess:
        folder = world.folder / f"gw{next(_numbers)}"
        folder.mkdir()
        made.append(GatewayProcess(world, folder, **options))
        return made[-1]

    yield begin
    for one in made:
        one.close()
        log = one.log.read_text()
        assert "Traceback" not in log, log
    assert world.strayed() == {}


@pytest.fixture
def desk(world: World, gateway: GatewayProcess) -> Iterator[Desk]:
    made = Desk(world, gateway)
    yield made
    gateway.remove_all()
    world.clear()
    assert world.strayed() == {}
