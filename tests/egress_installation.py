"""Owns a whole installation in a network of the test's own: its services stand where the gateway's way out is a test's.

Used by tests of egress that need more than a gateway. Invariant: nothing of it reaches the machine's real network.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from egress_canary import written
from egress_world import RESOLVER, World
from installation import Installation, make_installation
from kennel import Kennel
from kennel.node import interception

T = TypeVar("T")


class Walled(Installation):
    """An installation whose services stand in the world's inner namespace."""

    world: World

    def _run(self, command: str, *words: str) -> subprocess.CompletedProcess[str]:
        return interception.inside(self.world.inner, lambda: Installation._run(self, command, *words))

    def ask(self, work: Callable[[Kennel], T]) -> T:
        """What a client in the same namespace is told."""

        def talk() -> T:
            with self.client() as itx:
                return work(itx)

        return interception.inside(self.world.inner, talk)

    def holding(self, word: bytes) -> list[str]:
        """Files of the services, their logs and the sandboxes' disks that hold these bytes."""
        kept = [p for name in ("control", "gateway", "logs") for p in (self.data / name).rglob("*") if p.is_file()]
        kept += self.data.glob("node/sandboxes/*/disk.img")
        return [str(path) for path in kept if any(word in part for part in written(path))]

    def run(self, script: str, name: str = "box") -> str:
        return self.ask(lambda itx: itx.sandboxes.get(name).exec(script, timeout=30).stdout)


def make_walled(kind: type[Walled] = Walled, **more: str) -> Iterator[Walled]:
    """One that is up, with its world, and both gone afterwards."""
    if os.geteuid() != 0:
        pytest.skip("needs root: namespaces are real here")
    with tempfile.TemporaryDirectory(prefix="kennel-egress-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        world = World(Path(folder))
        here = type("Here", (kind,), {"world": world})
        try:
            settings = {"egress_resolver": RESOLVER, "egress_roots": str(world.authority.roots), **more}
            for made in make_installation(here, **settings):
                assert isinstance(made, Walled)
                yield made
        finally:
            world.close()


def soon(look: Callable[[], Any], seconds: float = 10.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)
    return found
