"""Buckets in sandboxes: a real s3fs, a real S3 server, a whole installation whose sandboxes reach it by the gateway."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bucket_store import ENDPOINT, Store, open_store
from egress_installation import Walled, make_walled, soon
from kennel import KennelError, MountView
from kennel.settings import Settings
from patience import within

KEY, SECRET = "AKIDMOUNTCANARY", "secret-canary-3f1f0c5e9b7d"
GIVEN = {"access_key_id": KEY, "secret_access_key": SECRET}


@pytest.fixture(scope="module")
def walled() -> Iterator[Walled]:
    for made in make_walled():
        made.ask(lambda itx: itx.sandboxes.get("box").create())
        yield made


@pytest.fixture(scope="module")
def store(walled: Walled) -> Iterator[Store]:
    with open_store(walled.world) as made:
        yield made


@pytest.fixture(autouse=True)
def unmounted(walled: Walled) -> Iterator[None]:
    yield
    for each in walled.ask(lambda itx: itx.sandboxes.get("box").list_mounts()):
        unmount(walled, each.mount_path, force=True)


def mount(walled: Walled, path: str = "/workspace/data", bucket: str = "bucket", **words: object) -> MountView:
    given = {"endpoint": ENDPOINT, "credentials": GIVEN, **words}
    return walled.ask(lambda itx: itx.sandboxes.get("box").mount_bucket(bucket, path, **given))  # type: ignore[arg-type]


def unmount(walled: Walled, path: str = "/workspace/data", *, force: bool = False) -> None:
    walled.ask(lambda itx: itx.sandboxes.get("box").unmount_bucket(path, force=force))


def test_what_is_written_is_in_the_bucket_and_the_other_way_round(walled: Walled, store: Store) -> None:
    view = mount(walled)
    assert (view.bucket, view.mount_path, view.alive, view.read_only) == ("bucket", "/workspace/data", True, False)
    assert walled.run("mkdir data/deep && echo out > data/deep/f && cat data/deep/f") == "out\n"
    assert store.get("deep/f") == b"out\n"
    store.put("put/there.txt", b"in")
    assert walled.run("cat data/put/there.txt") == "in"
    assert walled.ask(lambda itx: itx.sandboxes.get("box").list_mounts()) == [view]
    unmount(walled)
    assert walled.run("ls -A data 2>&1; mount | grep -c s3fs").endswith("0\n")
    assert walled.ask(lambda itx: itx.sandboxes.get("box").list_mounts()) == []


def test_a_prefix_confines_and_read_only_refuses(walled: Walled, store: Store) -> None:
    store.put("team/a/mine", b"1")
    store.put("other", b"2")
    mount(walled, prefix="/team/a/", read_only=True)
    outside = "cat data/../other data/../../other 2>&1 | grep -c 'No such'"
    assert walled.run(f"find data -type f; cat data/mine; {outside}") == "data/mine\n12\n"
    assert "Read-only file system" in walled.run("echo x > data/new 2>&1; rm data/mine 2>&1; mkdir data/d 2>&1; true")
    walled.run("mount -o remount,rw data; umount data; echo x > data/new; true")
    assert walled.run("cat data/mine") == "1"
    assert [key for key in store.keys() if key.startswith("team")] == ["team/a/mine"]  # noqa: SIM118
    unmount(walled)
    # A prefix is there once something is in it.
    mount(walled, prefix="team/b c/é")
    assert walled.run("ls data; echo new > data/new; cat data/new") == "new\n"
    assert store.get("team/b%20c/%C3%A9/new") == b"new\n"


def test_credentials_are_nowhere(walled: Walled, store: Store) -> None:
    mount(walled)
    look = (
        "grep -rlsa -e AKIDM[O]UNTCANARY -e secret-c[a]nary /proc/[0-9]*/environ /proc/[0-9]*/cmdline"
        " /workspace /tmp /run /dev/shm 2>/dev/null; env | grep -c -i canary; cat /proc/[0-9]*/comm | grep -c s3fs"
    )
    assert walled.run(look) == "0\n0\n"
    unmount(walled)
    for word in (KEY, SECRET):
        assert walled.holding(word.encode()) == []
        assert not [p for p in (walled.data / "node" / "sandboxes").rglob("*.json") if word in p.read_text()]
    told = [event["payload"] for event in walled.events("/sandboxes/box") if event["type"] == "sandbox/bucket-mounted"]
    assert told[-1] == {"bucket": "bucket", "mountPath": "/workspace/data", "endpoint": ENDPOINT, "readOnly": False}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ({"credentials": {"access_key_id": "x", "secret_access_key": "y z"}}, "INVALID_MOUNT_CONFIG", "visible ASCII"),
        ({"bucket": "nobody"}, "BUCKET_MOUNT_ERROR", "not found"),
        ({"endpoint": "https://nobody.example.com"}, "BUCKET_MOUNT_ERROR", ""),
        ({"path": "/workspace"}, "INVALID_MOUNT_CONFIG", "below /workspace"),
        ({"path": "/etc/x"}, "INVALID_MOUNT_CONFIG", "below /workspace"),
        ({"s3fs_options": ["use_cache=/workspace"]}, "INVALID_MOUNT_CONFIG", "no such option"),
    ],
)
def test_what_cannot_be_is_refused(walled: Walled, store: Store, words: dict[str, Any], code: str, said: str) -> None:
    with pytest.raises(KennelError) as refused:
        mount(walled, **words)
    assert refused.value.code == code
    assert said in f"{refused.value.message} {refused.value.details}"
    assert walled.ask(lambda itx: itx.sandboxes.get("box").list_mounts()) == []


def test_the_way_to_a_mount_leads_through_no_link_and_nothing_is_hidden(walled: Walled, store: Store) -> None:
    walled.run(
        "ln -s /etc away; ln -s /proc/1 away2; mkdir -p full real; echo x > full/x; ln -s real link; echo y > file"
    )
    for path in ("away/x", "away", "link", "link/x", "full", "file", "file/x"):
        with pytest.raises(KennelError) as refused:
            mount(walled, f"/workspace/{path}")
        assert (refused.value.code, path) == ("INVALID_MOUNT_CONFIG", path)
    assert walled.run("ls real; ls -d /etc/x 2>&1 | grep -c 'No such'") == "1\n"
    mount(walled, "/workspace/real/one")
    for path in ("/workspace/real/one", "/workspace/real/one/two", "/workspace/real"):
        with pytest.raises(KennelError) as refused:
            mount(walled, path)
        assert refused.value.code == "INVALID_MOUNT_CONFIG"
    masks = walled.run("mount | grep -c /proc/")
    # Moved away and a link put in its place: what is unmounted is the bucket all the same.
    walled.run("mv real moved && ln -s /proc real && ls moved/one")
    unmount(walled, "/workspace/real/one")
    assert walled.run("mount | grep -c s3fs; ls moved; mount | grep -c /proc/") == f"0\n{masks}"
    walled.run("rm -rf real moved away link full file")


def test_a_mount_in_use_is_unmounted_by_force_alone(walled: Walled, store: Store) -> None:
    mount(walled)
    walled.run("sh -c 'cd data && exec sleep 60' > /dev/null 2>&1 &")
    soon(lambda: walled.run("ls -l /proc/[0-9]*/cwd 2>/dev/null | grep -c workspace/data") == "1\n")
    with pytest.raises(KennelError) as refused:
        unmount(walled)
    assert (refused.value.code, "in use" in refused.value.message) == ("BUCKET_UNMOUNT_ERROR", True)
    assert walled.ask(lambda itx: itx.sandboxes.get("box").list_mounts())[0].alive
    unmount(walled, force=True)
    assert walled.run("ls -A data 2>/dev/null; mount | grep -c s3fs; pkill sleep") == "0\n"
    with pytest.raises(KennelError) as refused:
        unmount(walled)
    assert refused.value.code == "INVALID_MOUNT_CONFIG"


def test_a_sleep_ends_mounts_and_packs_none_of_them(walled: Walled, store: Store) -> None:
    store.put("big", b"x" * 300_000)
    mount(walled, "/workspace/a/data")
    walled.run("git init -q a 2>/dev/null; echo mine > a/mine; cat a/data/big | wc -c")
    before = s3fs_of(walled)
    assert len(before) == 1
    walled.ask(lambda itx: itx.sandboxes.get("box").sleep())
    assert s3fs_of(walled) == []
    assert walled.ask(lambda itx: itx.sandboxes.get("box").list_mounts()) == []
    assert walled.run("cat a/mine; ls -A a/data; mount | grep -c s3fs") == "mine\n0\n"
    assert store.get("big") == b"x" * 300_000


def test_a_silent_store_holds_up_calls_in_it_and_nothing_else(walled: Walled, store: Store) -> None:
    store.put("f", b"x")
    mount(walled)
    with store.silent():
        walled.run("(cat data/f; ls data) > /dev/null 2>&1 &")
        began = time.monotonic()
        walled.ask(lambda itx: itx.sandboxes.get("box").sleep())
        assert time.monotonic() - began < within(12)
        assert s3fs_of(walled) == []
        assert walled.run("ls -A data") == ""


def test_nodes_death_keeps_what_is_whole_and_takes_away_the_rest(walled: Walled, store: Store) -> None:
    mount(walled)
    [pid] = s3fs_of(walled)
    walled.kill("node")
    soon(lambda: _tried(walled) == [True])
    assert walled.run("echo still > data/still && cat data/still") == "still\n"
    assert (s3fs_of(walled), store.get("still")) == ([pid], b"still\n")
    os.kill(pid, signal.SIGKILL)
    soon(lambda: s3fs_of(walled) == [])
    assert "not connected" in walled.run("ls data 2>&1; true")
    assert not walled.ask(lambda itx: itx.sandboxes.get("box").list_mounts())[0].alive
    walled.kill("node")
    soon(lambda: _tried(walled) == [])
    assert walled.run("ls -A data 2>&1; mount | grep -c s3fs").endswith("0\n")


def _tried(walled: Walled) -> list[bool] | None:
    """Whether each mount is alive; None while node is on its way back."""
    try:
        return [each.alive for each in walled.ask(lambda itx: itx.sandboxes.get("box").list_mounts())]
    except KennelError:
        return None


def s3fs_of(walled: Walled) -> list[int]:
    """The processes of s3fs in this installation's control groups."""
    groups = Path("/sys/fs/cgroup").rglob(f"kennel/{Settings(data=walled.data).installation}/*/bucket-*/cgroup.procs")
    return sorted({int(pid) for listing in groups for pid in listing.read_text().split()})


def test_the_rules_of_the_way_out_hold_for_mounts(walled: Walled, store: Store) -> None:
    rule = {"ruleKey": "no-store", "verdict": "deny", "match": {"hosts": ["s3.example.com"]}}
    mount(walled)
    walled.ask(lambda itx: itx.egress.set_rules([rule]))
    try:
        assert "not permitted" in walled.run("ls data 2>&1; true")
        assert "not permitted" in walled.run("cp /etc/hostname data/denied 2>&1; true")
        unmount(walled)
        with pytest.raises(KennelError) as refused:
            mount(walled)
        assert refused.value.code == "BUCKET_MOUNT_ERROR"
    finally:
        walled.ask(lambda itx: itx.egress.set_rules([]))
    mount(walled)
    assert walled.run("echo x > data/again; cat data/again") == "x\n"
