"""A whole installation in a network of the test's own: secrets, rules, approvals, a gateway that dies."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from egress_world import RESOLVER, World
from installation import Installation, make_installation
from kennel import Kennel
from kennel.node import interception

T = TypeVar("T")
CANARY = "sk-canary-5d3c9a7e11f04b62"


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
        return [str(path) for path in kept if any(word in part for part in _written(path))]

    def run(self, script: str, name: str = "box") -> str:
        return self.ask(lambda itx: itx.sandboxes.get(name).exec(script, timeout=30).stdout)


def _written(path: Path) -> Iterator[bytes]:
    """The parts of a sparse file that were written."""
    with open(path, "rb") as stream:
        end, size = 0, path.stat().st_size
        while end < size:
            try:
                start = os.lseek(stream.fileno(), end, os.SEEK_DATA)
            except OSError:
                return  # a hole up to the end
            end = os.lseek(stream.fileno(), start, os.SEEK_HOLE)
            yield os.pread(stream.fileno(), end - start, start)


@pytest.fixture(scope="module")
def walled() -> Iterator[Walled]:
    if os.geteuid() != 0:
        pytest.skip("needs root: namespaces are real here")
    with tempfile.TemporaryDirectory(prefix="kennel-egress-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        world = World(Path(folder))
        kind = type("Here", (Walled,), {"world": world})
        try:
            settings = {"egress_resolver": RESOLVER, "egress_roots": str(world.authority.roots)}
            for made in make_installation(kind, **settings):
                assert isinstance(made, Walled)
                made.ask(lambda itx: itx.sandboxes.get("box").create())
                yield made
        finally:
            world.close()


@pytest.fixture(autouse=True)
def emptied(walled: Walled) -> Iterator[None]:
    yield
    walled.world.clear()


def soon(look: Callable[[], Any], seconds: float = 10.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)
    return found


def test_a_secret_goes_to_its_host_and_is_nowhere_else(walled: Walled) -> None:
    site = walled.world.site("api.example.com", "other.example.com")
    origin = "https://api.example.com"
    walled.ask(lambda itx: itx.secrets.set("canary", CANARY, origins=[origin]))
    ask = "curl -sS -H 'Authorization: Bearer getSecret(\"/secrets/canary\")' https://%s/v1"
    assert walled.run(ask % "api.example.com") == "ok"
    assert f"Bearer {CANARY}".encode() in site.requests[-1]
    heard = len(site.requests)
    assert "secret_not_allowed_for_origin" in walled.run(ask % "other.example.com")
    assert len(site.requests) == heard
    view = soon(lambda: (v := walled.ask(lambda itx: itx.secrets.get("canary"))).used_count and v)
    assert (view.used_count, view.last_used_by) == (1, "/sandboxes/box")
    assert walled.holding(CANARY.encode()) == []


def test_names_rules_and_the_audit(walled: Walled) -> None:
    walled.world.site("good.example.com", "bad.example.com")
    assert "name_not_found" in walled.run("curl -sS http://nowhere.example.com/")
    rule = {"ruleKey": "no-bad", "verdict": "deny", "match": {"hosts": ["bad.example.com"]}}
    walled.ask(lambda itx: itx.egress.set_rules([rule]))
    told = walled.run("curl -sS https://bad.example.com/; echo; curl -sS https://good.example.com/")
    assert '"code":"egress_denied"' in told
    assert '"ruleKey":"no-bad"' in told
    assert told.endswith("ok")
    found = walled.ask(lambda itx: itx.egress.test("GET", "https://bad.example.com/", sandbox="box"))
    assert (found.verdict, found.rule_key) == ("deny", "no-bad")
    rows = soon(lambda: [e.payload for e in walled.ask(lambda itx: itx.egress.log()) if e.payload.get("ruleKey")])
    assert rows[-1]["verdict"] == "deny"
    walled.ask(lambda itx: itx.egress.set_rules([]))


def test_a_request_waits_for_a_person(walled: Walled) -> None:
    site = walled.world.site("ask.example.com")
    rule = {"ruleKey": "ask", "verdict": "hold", "match": {"hosts": ["ask.example.com"]}}
    walled.ask(lambda itx: itx.egress.set_rules([rule]))
    for approve, body in ((True, "ok"), (False, "approval_rejected")):
        walled.run("rm -f out; (curl -sS https://ask.example.com/ > half; mv half out) > /dev/null 2>&1 &")
        heard = len(site.requests)
        [row] = soon(lambda: walled.ask(lambda itx: itx.approvals.list(status="open")))
        assert (row.rule_key, row.requests[0]["method"], len(site.requests)) == ("ask", "GET", heard)
        walled.ask(lambda itx, row=row, approve=approve: itx.approvals.decide(row.id, approve))
        assert body in soon(lambda: walled.run("cat out 2> /dev/null"))
    walled.ask(lambda itx: itx.egress.set_rules([]))


def test_a_gateway_that_dies_is_missed_and_told_everything_again(walled: Walled) -> None:
    walled.world.site("back.example.com")
    assert walled.run("curl -sS https://back.example.com/") == "ok"
    walled.kill("gateway")
    assert walled.run("echo works") == "works\n"
    soon(lambda: walled.run("curl -sS -m 3 https://back.example.com/") == "ok")
    rule = {"ruleKey": "no-back", "verdict": "deny", "match": {"hosts": ["back.example.com"]}}
    walled.ask(lambda itx: itx.egress.set_rules([rule]))
    walled.kill("control")
    walled.kill("gateway")
    soon(lambda: "no-back" in _tried(walled))


def _tried(walled: Walled) -> str:
    try:
        return walled.run("curl -sS -m 3 https://back.example.com/")
    except (OSError, RuntimeError):
        return ""  # control is on its way back
