"""Node is killed at each step of a mount and an unmount: afterwards the bucket is there whole, or nothing of it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bucket_store import ENDPOINT, open_store
from crashes import PATIENCE, Restless, boundaries
from egress_installation import Walled, make_walled, soon
from kennel import Kennel, KennelError
from kennel.node import interception
from kennel.settings import Settings

GIVEN = {"access_key_id": "AKID", "secret_access_key": "secret"}


class Both(Walled, Restless):
    """In a network of the test's own, and dying where it is told."""

    def up(self, *words: str) -> None:
        interception.inside(self.world.inner, lambda: Restless.up(self, *words))

    def down(self) -> None:
        Restless.down(self)

    def mount(self) -> None:
        self.ask(lambda itx: _box(itx).mount_bucket("bucket", "/workspace/b", endpoint=ENDPOINT, credentials=GIVEN))

    def unmount(self) -> None:
        self.ask(lambda itx: _box(itx).unmount_bucket("/workspace/b", force=True))

    def there(self) -> list[bool] | None:
        """Whether each mount is alive; None while node is on its way back."""
        try:
            return [each.alive for each in self.ask(lambda itx: _box(itx).list_mounts())]
        except KennelError:
            return None

    def served(self) -> int:
        """How many processes of s3fs there are."""
        name = Settings(data=self.data).installation
        groups = Path("/sys/fs/cgroup").rglob(f"kennel/{name}/*/bucket-*/cgroup.procs")
        return len({pid for listing in groups for pid in listing.read_text().split()})


def _box(itx: Kennel):  # type: ignore[no-untyped-def]
    return itx.sandboxes.get("box")


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    for made in make_walled(Both, warm_pool="0", steps="true"):
        assert isinstance(made, Both)
        made.ask(lambda itx: _box(itx).create())
        made.run("true")
        with open_store(made.world):
            yield made


def settled(both: Both) -> bool:
    """Whether all there is of buckets is whole; waits for that."""
    found = soon(lambda: (told := both.there()) is not None and (told,), PATIENCE)[0]
    assert found in ([], [True])
    soon(lambda: both.served() == len(found))
    assert both.run("mount | grep -c s3fs") == f"{len(found)}\n"
    assert len(list((both.data / "node/sandboxes").glob("*/buckets/*"))) == len(found)
    return bool(found)


def attempt(work: Callable[[], None]) -> str:
    try:
        work()
    except KennelError as failure:
        return failure.code
    return ""


@pytest.mark.full
@pytest.mark.timeout(600)
def test_node_dies_at_every_step(both: Both) -> None:
    at = both.mark("node")
    both.mount()
    middle = both.mark("node")
    both.unmount()
    cases = [(both.mount, each) for each in boundaries("node", both.steps("node", at)[: _count(both, at, middle)])]
    cases += [(both.unmount, each) for each in boundaries("node", both.steps("node", middle))]
    assert len(cases) > 10
    for verb, boundary in cases:
        if settled(both) != (verb == both.unmount):
            (both.mount if verb == both.unmount else both.unmount)()
        old = both.pid("node")
        boundary.arm(both)
        begun = time.monotonic()
        told: list[str] = []
        working = threading.Thread(target=lambda verb=verb, told=told: told.append(attempt(verb)))
        working.start()
        working.join(PATIENCE)
        assert not working.is_alive(), boundary
        if not boundary.disarm(both):
            soon(lambda old=old: both.pid("node") != old, PATIENCE)
        assert told[0] in ("", "NODE_UNAVAILABLE"), (str(boundary), told)
        assert time.monotonic() - begun < PATIENCE
        settled(both)


def _count(both: Both, at: int, middle: int) -> int:
    return len(both.steps("node", at)) - len(both.steps("node", middle))
