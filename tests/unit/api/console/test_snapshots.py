"""The snapshots' page: the tree, points, saved directories."""

from __future__ import annotations

from typing import Any

import pytest

from console_world import World, event
from fake_backups import BACKUP
from running_fakes import FakeRunning

pytestmark = pytest.mark.anyio

P = "/console/p/default/sandboxes/main"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def world() -> World:
    return World(running=FakeRunning())


async def test_a_fork_and_a_parent_are_shown(world: Any) -> None:
    world.snapshots.add("bk2", parent="bk1", forks=["/sandboxes/twin"], name=HOSTILE)
    page = await (await world.browser().login()).get(f"{P}/snapshots")
    assert "<script>alert" not in page.text
    assert 'href="/console/p/default/sandboxes/twin"' in page.text
    assert f"{P}/snapshots/bk1/diff?with=bk2" in page.text
    assert page.text.index('id="bk2"') < page.text.index('id="bk1"')


async def test_a_reader_can_compare_and_change_nothing(world: Any) -> None:
    page = await (await world.browser().login("reader")).get(f"{P}/snapshots")
    assert "/snapshots/bk1/diff" in page.text
    assert "<form" not in page.text.partition("<main")[2]


async def test_only_commands_with_a_point_can_be_gone_back_to(world: Any) -> None:
    world.streams.streams["/sandboxes/main"] = [
        event(1, "sandbox/exec-started", {"command": "before the point"}),
        event(2, "sandbox/point-taken"),
        event(3, "sandbox/exec-started", {"command": HOSTILE}),
    ]
    world.snapshots.add("pt1", reason="point", offset=2)
    browser = await world.browser().login()
    page = await browser.get(f"{P}/snapshots")
    assert "before the point" not in page.text
    assert "$ &lt;script&gt;" in page.text
    assert 'name="before" value="3"' in page.text
    await browser.submit(f"{P}/points/back", {"before": "3"})
    assert world.snapshots.calls == [("before", 3)]
    assert (await browser.submit(f"{P}/points/back", {"before": "x"})).status_code == 400
    await browser.submit(f"{P}/points", {"points": "on"})
    assert world.sandboxes.called("update") == [({"points": True},)]


async def test_a_directory_is_saved_put_back_and_deleted(world: Any) -> None:
    browser = await world.browser().login()
    page = await browser.get(f"{P}/snapshots")
    assert BACKUP.dir in page.text
    for path, words in (("", {"dir": "/home/x", "lasts": "week"}), (f"/{BACKUP.id}/restore", {"dir": ""}),
                        (f"/{BACKUP.id}/delete", {})):  # fmt: skip
        answer = await browser.submit(f"{P}/backups{path}", words)
        assert answer.headers["location"] == f"{P}/snapshots", answer.text
    assert (await browser.submit(f"{P}/backups/nosuch/delete")).status_code == 404
    assert (await browser.submit(f"{P}/backups", {"dir": "/home/x", "lasts": "year"})).status_code == 400
