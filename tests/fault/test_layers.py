"""Layers under attack and failure: hostile trees, damaged disks, a death at every step."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from patience import within

sys.path.insert(0, str(Path(__file__).parents[1]))
from ground import Ground, make_ground
from kennel.node import disk, linux, loop, priority
from kennel.node.freezer import Freezer
from kennel.node.layers import Layers
from kennel.node.pack import Caps, LeftOut, Packing, Upper
from kennel.node.packer import Packer
from kennel.wire.errors import KennelError

pytestmark = pytest.mark.root


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


def _refused(ground: Ground, name: str, caps: Caps | None = None) -> KennelError:
    with pytest.raises(KennelError) as caught:
        ground.packing.pack(ground.upper(name), caps=caps)
    assert list((ground.folder / "layers/coming").iterdir()) == []
    return caught.value


# Hostile trees -----------------------------------------------------------------------------------------------------


def test_a_tree_of_strange_things_packs_and_leads_nowhere(ground: Ground) -> None:
    name = ground.lay_out()
    upper = ground.place / "disk" / name / "upper"
    (upper / "sub").mkdir()
    os.symlink("/", upper / "root")
    os.symlink("../../../../../etc", upper / "sub" / "up")
    os.mknod(upper / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(upper / "disk", stat.S_IFBLK | 0o666, os.makedev(7, 0))
    os.mkfifo(upper / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(upper / "socket"))
    for raw in (b"\xff\xfe\x80", b"a\nb", b"\x01\x1b[31m", b"x" * 255, "\u202e".encode()):
        with open(os.path.join(os.fsencode(upper), raw), "wb") as stream:
            stream.write(raw)
    (upper / "suid").write_text("s")
    os.chmod(upper / "suid", 0o6777)
    made = ground.pack(name, left_out=LeftOut([b"../../x", b"root/etc", b"sub/up/passwd", b"/etc/passwd"]))
    seen = ground.layers.mounted(made.digest)
    names = set(os.listdir(os.fsencode(seen)))
    assert names == {
        b"sub", b"root", b"fifo", b"socket", b"suid",
        b"\xff\xfe\x80", b"a\nb", b"\x01\x1b[31m", b"x" * 255, "\u202e".encode(),
    }  # fmt: skip
    assert made.left_out == 2, "device nodes"
    assert os.readlink(seen / "root") == "/"
    assert os.readlink(seen / "sub/up") == "../../../../../etc"
    assert stat.S_IMODE(os.lstat(seen / "suid").st_mode) == 0o6777


def _dig(folder: Path, levels: int) -> None:
    code = "import os,sys\nos.chdir(sys.argv[1])\n"
    code += "for _ in range(int(sys.argv[2])): os.mkdir('deep'); os.chdir('deep')\nopen('end','w').write('bottom')"
    subprocess.run([sys.executable, "-c", code, str(folder), str(levels)], check=True)


def test_a_tree_deeper_than_path_max_packs_and_comes_back(ground: Ground) -> None:
    name = ground.lay_out()
    _dig(ground.place / "disk" / name / "upper", 3000)
    made = ground.pack(name)
    assert made.entries == 3001
    code = "import os,sys\nos.chdir(sys.argv[1])\nfor _ in range(3000): os.chdir('deep')\nprint(open('end').read())"
    words = [sys.executable, "-c", code, str(ground.layers.mounted(made.digest))]
    assert subprocess.run(words, check=True, capture_output=True, text=True).stdout == "bottom\n"
    difference = ground.packing.compare([], [made.digest])
    os.close(difference.listing)
    assert difference.added == 3001


def test_a_tree_too_deep_is_refused_by_name(ground: Ground) -> None:
    name = ground.lay_out()
    _dig(ground.place / "disk" / name / "upper", 8300)
    refused = _refused(ground, name)
    assert refused.code == "PATH_TOO_LONG"
    assert refused.details["path"].startswith("deep/deep/")


def test_a_vast_sparse_file_is_refused_by_name(ground: Ground) -> None:
    name = ground.lay_out()
    upper = ground.place / "disk" / name / "upper"
    (upper / "innocent").write_text("x")
    (upper / "vast\n").touch()
    os.truncate(upper / "vast\n", 15 << 40)
    refused = _refused(ground, name)
    assert (refused.code, refused.status) == ("PACK_TOO_LARGE", 413)
    assert refused.details == {"path": "vast\n"}


def test_a_sparse_file_below_the_cap_costs_its_data_only(ground: Ground) -> None:
    name = ground.lay_out()
    target = ground.place / "disk" / name / "upper" / "sparse"
    with open(target, "wb") as stream:
        stream.truncate(40 << 30)
        stream.seek(20 << 30)
        stream.write(b"island")
    made = ground.pack(name)
    assert made.unpacked == 40 << 30
    assert made.size < 2 << 20
    with open(ground.layers.mounted(made.digest) / "sparse", "rb") as stream:
        stream.seek((20 << 30) - 3)
        assert stream.read(12) == b"\0\0\0island\0\0\0"
        assert os.fstat(stream.fileno()).st_size == 40 << 30


def test_too_many_names_are_refused(ground: Ground) -> None:
    name = ground.lay_out()
    for number in range(30):
        (ground.place / "disk" / name / "upper" / str(number)).touch()
    assert _refused(ground, name, Caps(entries=20)).code == "PACK_TOO_LARGE"
    assert ground.packing.pack(ground.upper(name), caps=Caps(entries=30)).entries == 30


def test_a_deadline_ends_the_work(ground: Ground) -> None:
    name = ground.lay_out()
    upper = ground.place / "disk" / name / "upper"
    with open(upper / "big", "wb") as stream:
        for _ in range(300):
            stream.write(os.urandom(1 << 20))
    before = time.monotonic()
    assert _refused(ground, name, Caps(seconds=0.05)).code == "PACK_TIMEOUT"
    assert time.monotonic() - before < within(8)
    assert _processes(ground) == 1, "only the process that jobs are forked from"


def test_a_damaged_directory_fails_the_pack_with_a_typed_error(ground: Ground) -> None:
    name = ground.lay_out()
    folder = ground.place / "disk" / name / "upper" / "folder"
    folder.mkdir()
    for number in range(50):
        (folder / f"file{number}").write_text("x")
    linux.umount(str(ground.place / "disk"))
    assert loop.wait_released(str(ground.image), 60)
    words = ["debugfs", "-R", f"blocks /{name}/upper/folder", str(ground.image)]
    block = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[0])
    with open(ground.image, "r+b") as stream:
        stream.seek(block * 4096)
        stream.write(os.urandom(4096))
    disk.mount(ground.image, ground.place / "disk")
    assert _refused(ground, name).code == "FILESYSTEM_ERROR"


def test_a_full_disk_is_said_to_be_full(ground: Ground) -> None:
    name = ground.lay_out()
    with open(ground.place / "disk" / name / "upper" / "big", "wb") as stream:
        stream.write(os.urandom(8 << 20))
    small = ground.folder / "small"
    small.mkdir()
    linux.mount("kennel", str(small), "tmpfs", linux.MS_NOSUID, "size=4m")
    layers = Layers(small / "layers", ground.packer)
    with pytest.raises(KennelError) as caught:
        Packing(layers, ground.packer).pack(ground.upper(name))
    assert caught.value.code == "NO_SPACE"
    assert layers.list() == {}
    assert list((small / "layers/coming").iterdir()) == []


# The walls ---------------------------------------------------------------------------------------------------------


_PROBE = """
import json, os, socket
from kennel.node.packing import jobs
def probe(line, words, descriptors):
    found = {}
    def attempt(name, call):
        try:
            call(); found[name] = "allowed"
        except OSError as failure:
            found[name] = failure.errno
    attempt("open", lambda: os.open("/etc/passwd", os.O_RDONLY))
    attempt("up", lambda: os.open("../../etc/passwd", os.O_RDONLY))
    attempt("list", lambda: found.update(root=sorted(os.listdir("/"))))
    attempt("create", lambda: os.open("/x", os.O_WRONLY | os.O_CREAT))
    attempt("socket", lambda: socket.socket())
    attempt("fork", os.fork)
    attempt("exec", lambda: os.execv("/bin/sh", ["sh"]))
    attempt("mount", lambda: os.chroot("/"))
    attempt("kill", lambda: os.kill(1, 0))
    attempt("unlink", lambda: os.unlink("/x"))
    attempt("uid", lambda: os.setuid(0))
    found["ids"] = [os.getpid()]
    return found
jobs._JOBS["probe"] = probe
"""


def test_a_job_reaches_nothing_but_its_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    from kennel.node import packer as module

    monkeypatch.setattr(module, "_BOOT", module._BOOT.replace("main()\n", _PROBE + "main()\n"))
    packer = Packer()
    try:
        found = packer.run({"job": "probe"}, [], seconds=10, max_image=1 << 20)
        pid = packer._process.pid if packer._process else 0
        status = Path(f"/proc/{pid}/mountinfo").read_text()
    finally:
        packer.close()
    refused = {"socket", "fork", "exec", "mount", "kill", "unlink", "uid"}
    assert {name: found[name] for name in refused} == dict.fromkeys(refused, 1)
    assert found["open"] == found["up"] == 2
    assert found["create"] in (1, 13, 30)
    assert (found["list"], found["root"], found["ids"]) == ("allowed", [], [1])
    assert len(status.splitlines()) == 1, "one mount: the empty root"


class Watching(Freezer):
    """Freezes nobody, and notes how urgent the job is meanwhile."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self.seen, self.frozen_seconds = ground, [], 0.0

    def _note(self) -> None:
        assert self.ground.packer._process is not None
        outer = _children(self.ground.packer._process.pid)
        self.seen += [os.getpriority(os.PRIO_PROCESS, inner) for each in outer for inner in _children(each)]

    def freeze(self, seconds: float = 2.0) -> None:
        self._note()

    def thaw(self) -> None:
        self._note()


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_pass_that_a_frozen_sandbox_waits_for_comes_before_others(ground: Ground) -> None:
    watching = Watching(ground)
    ground.packing.pack(ground.upper(_one_layer(ground, "text")), freezer=watching)
    # When it was frozen, and perhaps when that was over: so small a job may be gone by then.
    assert set(watching.seen) == {priority.URGENT}


# Deaths ------------------------------------------------------------------------------------------------------------


def _processes(ground: Ground, pid: int | None = None) -> int:
    """The packing processes of this ground."""
    top = pid or (ground.packer._process.pid if ground.packer._process else 0)
    found, pending = 0, [top]
    while pending:
        process = pending.pop()
        try:
            state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
            children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        except OSError:
            continue
        found += state != "Z"
        pending += [int(child) for child in children]
    return found


def _large(ground: Ground) -> str:
    name = ground.lay_out()
    with open(ground.place / "disk" / name / "upper" / "big", "wb") as stream:
        for _ in range(100):
            stream.write(os.urandom(1 << 20))
    return name


@pytest.mark.parametrize("whole", [True, False], ids=["the first process", "the job"])
def test_a_killed_process_fails_its_pack_and_the_next_one_works(ground: Ground, whole: bool) -> None:
    name = _large(ground)
    ground.packer.start()
    assert ground.packer._process is not None
    top = ground.packer._process.pid

    def kill() -> None:
        children = Path(f"/proc/{top}/task/{top}/children")
        while not children.read_text():
            time.sleep(0.001)
        time.sleep(0.02)
        os.kill(top if whole else int(children.read_text().split()[0]), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    refused = _refused(ground, name)
    killer.join()
    assert refused.code == "PACK_FAILED"
    made = ground.pack(name)
    assert ground.layers.verify(made.digest)
    assert _processes(ground) == 1


_DYING = """
import os, signal, sys
from pathlib import Path
from kennel.node import layers, pack, packer, stack
step = [int(sys.argv[3])]
def dying(function):
    def call(*words, **named):
        step[0] -= 1
        if step[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*words, **named)
    return call
place, what = Path(sys.argv[1]), sys.argv[2]
words = sys.argv[4:]
process = packer.Packer()
process.start()
print(process._process.pid, flush=True)
cache = layers.Layers(place / "layers", process)
packing = pack.Packing(cache, process)
base = int(words[0])
for name in ("open", "rename", "unlink", "fsync", "close", "fchmod", "chown", "chmod", "utime", "memfd_create"):
    setattr(os, name, dying(getattr(os, name)))
if what == "pack":
    packing.pack(pack.Upper(place / "sandbox/disk" / words[1] / "upper", base, []))
elif what == "compact":
    packing.compact(words[1:], bottom=True)
elif what == "import":
    descriptor = cache.begin_import()
    with open(words[2], "rb") as stream:
        os.write(descriptor, stream.read())
    cache.commit_import(descriptor, words[1])
elif what == "mount":
    stack.mount_stack(cache, place / "sandbox", words[1], place / "sandbox" / words[1], words[2:], base)
print("done", flush=True)
"""


def _die(ground: Ground, what: str, *words: str) -> Iterator[bool]:
    """Runs a verb in a process that is killed at its first call, its second, and so on; True once it got through."""
    step, done = 0, False
    while not done:
        step += 1
        command = [sys.executable, "-c", _DYING, str(ground.folder), what, str(step), str(ground.base(0)), *words]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        done = "done" in run.stdout
        assert done or run.returncode == -signal.SIGKILL, run.stderr
        assert step < 200
        deadline = time.monotonic() + 5
        while _processes(ground, int(run.stdout.split()[0])):
            assert time.monotonic() < deadline, "a packing process outlived its node"
            time.sleep(0.01)
        Layers(ground.folder / "layers", ground.packer).sweep()
        assert list((ground.folder / "layers/coming").iterdir()) == []
        for digest in ground.layers.list():
            assert ground.layers.verify(digest)
        yield done


def _one_layer(ground: Ground, text: str) -> str:
    name, seen = ground.wake([])
    (seen / "f").write_text(text)
    ground.rest(name)
    return name


def test_node_killed_at_every_step_of_a_pack(ground: Ground) -> None:
    name = _one_layer(ground, "text")
    expected = ground.pack(name).digest
    ground.layers.remove(expected)
    for done in _die(ground, "pack", name):
        assert set(ground.layers.list()) in ({expected}, set())
        assert not done or ground.layers.has(expected)
        ground.layers.remove(expected)


def test_node_killed_at_every_step_of_a_merge(ground: Ground) -> None:
    parts = [ground.pack(_one_layer(ground, text)).digest for text in ("new", "old")]
    expected = ground.packing.compact(parts, bottom=True).digest
    assert expected == parts[0] or ground.layers.has(expected)
    if expected not in parts:
        ground.layers.remove(expected)
    for _ in _die(ground, "compact", *parts):
        assert set(ground.layers.list()) <= {*parts, expected}
        if expected not in parts:
            ground.layers.remove(expected)


def test_node_killed_at_every_step_of_an_import(ground: Ground) -> None:
    made = ground.pack(_one_layer(ground, "text"))
    source = ground.folder / "fetched"
    source.write_bytes(ground.layers.path(made.digest).read_bytes())
    ground.layers.remove(made.digest)
    for done in _die(ground, "import", made.digest, str(source)):
        assert not done or ground.layers.has(made.digest)
        ground.layers.remove(made.digest)


def test_node_killed_at_every_step_of_a_mount(ground: Ground) -> None:
    made = ground.pack(_one_layer(ground, "text"))
    name = ground.lay_out()
    for _ in _die(ground, "mount", name, made.digest):
        for target in reversed(_mounts(ground.place / f"lower-{name}") + _mounts(ground.place / name)):
            linux.umount(target, linux.MNT_DETACH)
    assert (ground.wake([made.digest])[1] / "f").read_text() == "text"


def _mounts(folder: Path) -> list[str]:
    targets = [row.split()[4] for row in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [target for target in targets if target == str(folder) or target.startswith(f"{folder}/")]


def test_jobs_run_side_by_side(ground: Ground) -> None:
    names = [_one_layer(ground, str(number)) for number in range(12)]
    made: list[str] = []
    threads = [threading.Thread(target=lambda n=name: made.append(ground.pack(n).digest)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 12
    assert Upper(ground.place, 0).below == ()
