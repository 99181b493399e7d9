"""Buckets in sandboxes: a real s3fs, a real S3 server, a whole installation whose sandboxes reach it by the gateway."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bucket_store import ENDPOINT, Store, open_store
from egress_installation import Walled, make_walled, soon
from kennel import KennelError, MountView
from kennel.node import interception
from kennel.node.buckets.mounts import USERS
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


def mount(
    walled: Walled, path: str = "/workspace/data", bucket: str = "bucket", name: str = "box", **words: object
) -> MountView:
    given = {"endpoint": ENDPOINT, "credentials": GIVEN, **words}
    return walled.ask(lambda itx: itx.sandboxes.get(name).mount_bucket(bucket, path, **given))  # type: ignore[arg-type]


def unmount(walled: Walled, path: str = "/workspace/data", *, force: bool = False) -> None:
    walled.ask(lambda itx: itx.sandboxes.get("box").unmount_bucket(path, force=force))


def test_what_is_written_is_in_the_bucket_and_the_other_way_round(walled: Walled, store: Store) -> None:
    view = mount(walled)
    assert (view.bucket, view.mount_path, view.alive, view.read_only) == ("bucket", "/workspace/data", True, False)
    assert walled.run("mkdir data/deep && echo out > data/deep/f && cat data/deep/f") == "out\n"
    assert store.get("deep/f") == b"out\n"
    store.put("put/there.txt", b"in")
    assert walled.run("cat data/put/there.txt") == "in"
    walled.ask(lambda itx: itx.sandboxes.get("box").write_file("/workspace/data/put/by api", "é"))
    assert store.get("put/by%20api") == "é".encode()
    found = walled.ask(lambda itx: itx.sandboxes.get("box").list_files("/workspace/data/put"))
    assert sorted(each.name for each in found) == ["by api", "there.txt"]
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
        assert not [p for p in (walled.data / "node" / "sandboxes").glob("*/bu*/*.json") if word in p.read_text()]
    told = [event["payload"] for event in walled.events("/sandboxes/box") if event["type"] == "sandbox/bucket-mounted"]
    assert told[-1] == {"bucket": "bucket", "mountPath": "/workspace/data", "endpoint": ENDPOINT, "readOnly": False}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ({"credentials": {"access_key_id": "x", "secret_access_key": "y z"}}, "INVALID_MOUNT_CONFIG", "visible ASCII"),
        ({"bucket": "nobody"}, "BUCKET_MOUNT_ERROR", "not found"),
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


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
def test_neither_hosts_root_nor_s3fs_can_do_what_they_must_not(walled: Walled, store: Store) -> None:
    mount(walled)
    [pid] = s3fs_of(walled)
    status = Path(f"/proc/{pid}/status").read_text()
    facts = dict(line.split(":\t", 1) for line in status.splitlines())
    assert {facts[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    assert {int(uid) - USERS for uid in facts["Uid"].split()} <= set(range(100))
    root = Path(f"/proc/{pid}/root")
    assert {path.name for path in root.iterdir()} <= {
        "usr", "bin", "sbin", "lib", "lib64", "lib32", "dev", "etc", "tmp", "mnt", ".kennel", "proc",
    }  # fmt: skip
    assert os.listdir(root / "mnt") == []
    sandbox = walled.ask(lambda itx: itx.sandboxes.get("box").info().sandbox_id)
    told = Path(f"/proc/{pid}/cgroup").read_text()
    assert all(f"/{sandbox}/bucket-0" in line for line in told.splitlines() if ":memory:" in line or ":pids:" in line)
    inside = int((walled.data / "node/sandboxes" / sandbox / "bundle/pid").read_text())
    with pytest.raises(PermissionError):
        os.listdir(f"/proc/{inside}/root/workspace/data")


@pytest.mark.full
def test_a_live_snapshot_and_a_backup_have_nothing_of_a_bucket(walled: Walled, store: Store) -> None:
    store.put("in/the/bucket", b"x" * 100_000)
    walled.run("mkdir -p repo && cd repo && git init -q && echo out > .gitignore && touch out kept")
    mount(walled, "/workspace/repo/a b")
    walled.run("(while :; do cat 'repo/a b/in/the/bucket'; done) > /dev/null 2>&1 &")
    box = walled.ask(lambda itx: itx.sandboxes.get("box").snapshot("live"))
    other = walled.ask(lambda itx: itx.sandboxes.get("box").fork("copy", box).name)
    assert walled.run("find repo -name .git -prune -o -print | sort", other) == (
        "repo\nrepo/.gitignore\nrepo/a b\nrepo/kept\n"
    )
    saved = walled.ask(lambda itx: itx.sandboxes.get("box").create_backup("/workspace/repo"))
    assert saved.size < 100_000
    walled.ask(lambda itx: itx.sandboxes.get(other).destroy())
    walled.run("pkill -f 'while :'; true")


@pytest.mark.full
def test_a_silent_store_costs_a_mount_its_time_and_ends_hold_it_up_not(walled: Walled, store: Store) -> None:
    with store.silent():
        began = time.monotonic()
        with pytest.raises(KennelError) as refused:
            mount(walled)
        assert refused.value.code == "BUCKET_MOUNT_ERROR"
        assert time.monotonic() - began < within(30)
        walled.ask(lambda itx: itx.sandboxes.get("gone").create())
        failures: list[str] = []

        def ask() -> None:
            try:
                mount(walled, name="gone")
            except KennelError as failure:
                failures.append(failure.code)

        waiting = threading.Thread(target=ask)
        waiting.start()
        soon(lambda: s3fs_of(walled))
        began = time.monotonic()
        walled.ask(lambda itx: itx.sandboxes.get("gone").destroy())
        assert time.monotonic() - began < within(5)
        waiting.join()
        # Its way out is taken away first, which s3fs may notice before node is told.
        assert failures in (["OPERATION_INTERRUPTED"], ["BUCKET_MOUNT_ERROR"])
        assert s3fs_of(walled) == []
    mount(walled)
    with store.silent():
        walled.run("(cat data/f; ls data) > /dev/null 2>&1 &")
        began = time.monotonic()
        walled.ask(lambda itx: itx.sandboxes.get("box").kill())
        assert time.monotonic() - began < within(5)
    assert s3fs_of(walled) == []


@pytest.mark.full
@pytest.mark.parametrize("delay", [0.02, 0.08, 0.15, 0.25, 0.4, 0.6])
def test_node_killed_in_the_middle_of_a_mount_leaves_all_of_it_or_nothing(
    walled: Walled, store: Store, delay: float
) -> None:
    walled.run("true")
    waiting = threading.Thread(target=lambda: _tried_to(lambda: mount(walled)))
    waiting.start()
    time.sleep(delay)
    walled.kill("node")
    waiting.join()
    found = soon(lambda: (told := _tried(walled)) is not None and [told])[0]
    assert found in ([], [True])
    soon(lambda: len(s3fs_of(walled)) == len(found))
    assert walled.run("mount | grep -c s3fs") == f"{len(found)}\n"
    assert len(list((walled.data / "node/sandboxes").glob("*/buckets/*"))) == len(found)
    unmount(walled, force=True) if found else mount(walled)


@pytest.mark.full
def test_large_files_several_buckets_and_other_users(walled: Walled, store: Store) -> None:
    store.request("PUT", "second")
    mount(walled)
    mount(walled, "/workspace/two", "second", s3fs_options=["umask=0000", "uid=1000", "gid=1000"])
    walled.run("head -c 30000000 /dev/urandom > big && cp big data/big && cp data/big two/big")
    digests = walled.run("cat big | sha256sum; cat data/big | sha256sum; cat two/big | sha256sum").split("\n")
    assert len(set(digests[:3])) == 1
    assert hashlib.sha256(store.get("big")).hexdigest() == digests[0].split()[0]
    assert walled.ask(lambda itx: itx.sandboxes.get("box").exec("id -u; touch two/mine", user="1000")).exit_code == 0
    assert (
        walled.run("mv two/big two/moved; rm data/big; ls two data | grep -c big; stat -c %u two/mine") == "0\n1000\n"
    )


def _tried_to(work: Callable[[], Any]) -> None:
    with contextlib.suppress(KennelError):
        work()


@pytest.mark.full
def test_a_sandbox_that_dies_takes_its_buckets_along(walled: Walled, store: Store) -> None:
    walled.ask(lambda itx: itx.sandboxes.get("dying").create())
    mount(walled, name="dying")
    sandbox = walled.ask(lambda itx: itx.sandboxes.get("dying").info().sandbox_id)
    os.kill(int((walled.data / "node/sandboxes" / sandbox / "bundle/pid").read_text()), signal.SIGKILL)
    soon(lambda: s3fs_of(walled) == [])
    soon(lambda: not walled.ask(lambda itx: itx.sandboxes.get("dying").info().running))
    assert walled.run("ls -A data", "dying") == ""
    # Nor does one that is found dead by a node that was away at the time.
    mount(walled, name="dying")
    walled.kill("node")
    soon(lambda: _tried(walled) is not None)
    walled.ask(lambda itx: itx.sandboxes.get("dying").destroy())
    assert s3fs_of(walled) == []
    assert not (walled.data / "node/sandboxes" / sandbox).exists()


@pytest.mark.full
def test_the_command_line(walled: Walled, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*words: str) -> str:
        done = interception.inside(walled.world.inner, lambda: walled.cli("sandbox", *words))
        return (done.stdout + done.stderr).decode()

    asked = ("mount", "box", "bucket", "/workspace/data", "--endpoint", ENDPOINT, "--prefix", "cli", "--read-only")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "R2_ACCESS_KEY_ID", "R2_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert "MISSING_CREDENTIALS" in run(*asked)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert "/workspace/data  bucket  cli" in run(*asked)
    assert '"alive":true' in run("mounts", "box", "--json").replace(" ", "")
    assert "nothing is mounted" in run("unmount", "box", "/workspace/data")
    assert "INVALID_MOUNT_CONFIG" in run("unmount", "box", "/workspace/data")
