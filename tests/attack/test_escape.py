"""What a hostile root inside tries in order to see, reach or change the machine outside; each must fail.

Every test runs twice: against a bare runc bundle with the same walls, and against a sandbox of a real installation.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kennel.wire.errors import KennelError

if TYPE_CHECKING:
    from walls import Walls

pytestmark = pytest.mark.root
CAPABILITIES = 0x405FB
"""CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, SYS_CHROOT."""


def python(walls: Walls, code: str, *, uid: int = 0, cwd: str = "/") -> str:
    """What a Python program prints inside."""
    ran = walls.run(["/usr/bin/python3", "-I", "-c", code], uid=uid, cwd=cwd)
    assert ran.code == 0, ran.err
    return ran.out


@pytest.fixture
def canary() -> Iterator[Path]:
    """A file of the host that everybody may read, under a name that is nowhere else."""
    path = Path("/var/tmp") / f"kennel-canary-{uuid.uuid4().hex}"
    path.write_text(path.name)
    path.chmod(0o644)
    yield path
    path.unlink()


# -- processes ---------------------------------------------------------------------------------------------------------


def test_processes_of_the_host_are_invisible(walls: Walls) -> None:
    out = walls.run(["sh", "-c", "ls /proc | grep '^[0-9]'; tr '\\0' ' ' < /proc/1/cmdline"]).out
    assert len(out.splitlines()) < 20
    assert "init" not in out
    host = max(int(name) for name in os.listdir("/proc") if name.isdigit())
    answers = python(
        walls,
        f"import os, ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"for pid in ({os.getpid()}, {os.getppid()}, {host}):\n"
        "    if os.path.exists(f'/proc/{pid}'): continue\n"
        "    for call in (lambda: os.kill(pid, 0), lambda: os.pidfd_open(pid)):\n"
        "        try: call(); print('reached', pid)\n"
        "        except ProcessLookupError: print('none')\n"
        "    print('none' if libc.ptrace(16, pid, 0, 0) == -1 and ctypes.get_errno() == 3 else 'traced')\n",
    )
    assert answers
    assert set(answers.split()) == {"none"}


def test_every_namespace_is_its_own(walls: Walls) -> None:
    kinds = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
    inside = walls.run(["sh", "-c", "for k in " + " ".join(kinds) + "; do readlink /proc/self/ns/$k; done"]).out.split()
    assert len(inside) == len(kinds)
    for kind, seen in zip(kinds, inside, strict=True):
        assert seen != os.readlink(f"/proc/self/ns/{kind}"), kind


def test_root_inside_is_an_unprivileged_user_outside(walls: Walls) -> None:
    mark = f"31{int(time.time() * 1000) % 10**9}"
    runner = threading.Thread(target=walls.run, args=(["sleep", mark],), kwargs={"timeout": 20})
    runner.start()
    try:
        pid = wait_for_process(mark)
        status = Path(f"/proc/{pid}/status").read_text()
        ids = [int(word) for line in ("Uid", "Gid") for word in re.findall(rf"{line}:\s+(.*)", status)[0].split()]
        assert set(ids) == {walls.first_id}
        assert walls.first_id >= 1 << 16
        assert "Seccomp:\t2" in status
        assert int(re.findall(r"CapBnd:\s+(\w+)", status)[0], 16) == CAPABILITIES
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
        runner.join()


def wait_for_process(mark: str) -> int:
    """The host pid of `sleep <mark>`."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if entry.read_bytes() == f"sleep\0{mark}\0".encode():
                    return int(entry.parent.name)
        time.sleep(0.02)
    raise AssertionError("the marked process does not run")


def test_capabilities_are_the_ten_and_a_user_has_none(walls: Walls) -> None:
    for uid, effective in ((0, CAPABILITIES), (1000, 0)):
        status = walls.run(["cat", "/proc/self/status"], uid=uid).out
        found = {name: int(value, 16) for name, value in re.findall(r"Cap(\w+):\s+(\w+)", status)}
        assert found == {"Inh": 0, "Prm": effective, "Eff": effective, "Bnd": CAPABILITIES, "Amb": 0}


def test_a_file_with_capabilities_gives_no_more(walls: Walls) -> None:
    # Revision 2 of the attribute, every capability permitted and effective.
    code = """
import os, shutil, subprocess
shutil.copy('/usr/bin/cat', '/tmp/capable')
try:
    os.setxattr('/tmp/capable', 'security.capability', bytes.fromhex('01000002ffffffff00000000ffffff0100000000'))
except PermissionError:
    print('refused')
done = subprocess.run(['/tmp/capable', '/proc/self/status'], capture_output=True, text=True)
print(next(line.split()[1] for line in done.stdout.splitlines() if line.startswith('CapEff')))
"""
    assert python(walls, code).split()[-1] == f"{CAPABILITIES:016x}"


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_of_the_host_are_invisible(walls: Walls, canary: Path) -> None:
    assert walls.run(["cat", str(canary)]).code != 0
    found = walls.run(["find", "/", "-path", "/proc", "-prune", "-o", "-name", canary.name, "-print"])
    assert found.out == ""
    assert walls.run(["sh", "-c", f"cat /proc/*/root{canary} /proc/*/cwd/../../../..{canary} 2>/dev/null"]).out == ""
    for name in ("root", "home"):
        inside = set(walls.run(["ls", "-A", f"/{name}"]).out.split())
        assert inside <= {"user", "nobody"} | {entry for entry in inside if entry.startswith(".")}


def test_no_secret_of_the_hosts_etc_is_inside(walls: Walls) -> None:
    shadow = walls.run(["cat", "/etc/shadow"]).out
    assert {line.split(":")[1] for line in shadow.splitlines()} <= {"*", "!", "!*"}
    for name in (
        "/etc/ssl/private",
        "/etc/ssh/ssh_host_ed25519_key",
        "/etc/ssh/ssh_host_rsa_key",
        "/etc/apt/auth.conf",
    ):
        assert walls.run(["ls", name]).out.strip() == "", name
    outside = Path("/etc/machine-id")
    if outside.is_file():
        assert walls.run(["cat", "/etc/machine-id"]).out != outside.read_text()


def test_where_things_lie_on_the_host_cannot_be_read(walls: Walls) -> None:
    told = walls.run(["sh", "-c", "cat /proc/self/mountinfo /proc/mounts /proc/self/cgroup /proc/*/environ; env"]).out
    assert "overlay" in told
    for word in walls.hidden:
        assert word not in told


def test_no_mount_of_the_host_propagates(walls: Walls) -> None:
    table = walls.run(["cat", "/proc/self/mountinfo"]).out.splitlines()
    assert len(table) > 10
    for line in table:
        optional = line.split(" - ")[0].split()[6:]
        assert optional == [], line
    assert not [line for line in table if " - cgroup" in line or " - sysfs" in line or " - debugfs" in line]


def test_symbolic_links_lead_nowhere_else(walls: Walls, canary: Path) -> None:
    for target in ("/proc/1/root", "/proc/self/root", "/proc/self/cwd/../../../../../..", "/proc/thread-self/root"):
        out = walls.run(["sh", "-c", f"ln -sfn {target} /tmp/way && cat /tmp/way{canary}; ls /tmp/way/workspace"])
        assert canary.name not in out.out


def test_working_directories_lead_nowhere_else(walls: Walls, canary: Path) -> None:
    """A working directory that is a descriptor some program forgot to close was CVE-2024-21626."""
    script = f'up=..; for i in 1 2 3 4 5 6 7 8; do up=$up/..; cat "$up{canary}" 2>/dev/null; done; exit 0'
    walls.run(["ln", "-sfn", "/proc/1/root", "/tmp/root-of-one"])
    places = [f"/proc/self/fd/{number}" for number in range(3, 15)] + [f"/proc/1/fd/{number}" for number in range(3, 9)]
    for cwd in (*places, "/proc/1/cwd", "/proc/1/root", "/proc/self/root/..", "/tmp/root-of-one"):
        try:
            ran = walls.run(["sh", "-c", script], cwd=cwd)
        except KennelError:
            continue
        assert canary.name not in ran.out, cwd


# -- devices, kernel interfaces ----------------------------------------------------------------------------------------

DEVICES = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue", "fd", "stdin", "stdout",
           "stderr", "core", "console"}  # fmt: skip


def test_dev_holds_harmless_devices_only(walls: Walls) -> None:
    assert set(walls.run(["ls", "-A", "/dev"]).out.split()) <= DEVICES
    found = walls.run(["find", "/", "-xdev", "(", "-type", "b", "-o", "-type", "c", ")"]).out
    assert found == ""


def test_devices_cannot_be_made(walls: Walls) -> None:
    for words in ("/tmp/mem c 1 1", "/tmp/disk b 254 0", "/tmp/loop b 7 0", "/tmp/kmsg c 1 11", "/dev/kvm c 10 232"):
        ran = walls.run(["mknod", *words.split()])
        assert ran.code != 0
        assert "Operation not permitted" in ran.err


def test_nothing_in_proc_or_sys_takes_a_write(walls: Walls) -> None:
    """Opens every file for writing (without writing), core_pattern, sysrq-trigger and modprobe among them."""
    code = """
import os
opened, tried = [], 0
for top in ("/proc", "/sys"):
    for folder, folders, files in os.walk(top):
        if folder == "/proc":
            folders[:] = [name for name in folders if not name.isdigit() and name not in ("self", "thread-self")]
        for name in files:
            path = os.path.join(folder, name)
            tried += 1
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            except OSError:
                continue
            found = os.fstat(descriptor)
            if found.st_rdev != os.makedev(1, 3):
                opened.append(path)
            os.close(descriptor)
print(tried, *opened)
"""
    tried, *opened = python(walls, code).split()
    assert int(tried) > 500
    assert opened == []


@pytest.mark.parametrize(
    "name", ["keys", "key-users", "kallsyms", "kcore", "kmsg", "modules", "cmdline", "timer_list", "iomem", "slabinfo"]
)
def test_facts_about_the_machine_are_masked(walls: Walls, name: str) -> None:
    ran = walls.run(["sh", "-c", f"test ! -e /proc/{name} || head -c 100 /proc/{name}"])
    assert ran.out == ""


def test_no_cgroup_can_be_seen_or_changed(walls: Walls) -> None:
    """The release_agent escape needs a cgroup v1 mount that is writable."""
    out = walls.run(
        ["sh", "-c", "mkdir -p /tmp/cg; mount -t cgroup -o memory cgroup /tmp/cg && echo mounted;"
         " mount -t cgroup2 none /tmp/cg && echo mounted; find / -xdev -name release_agent; ls -A /sys/fs/cgroup"]
    )  # fmt: skip
    assert out.out == ""
    for line in walls.run(["cat", "/proc/self/cgroup"]).out.splitlines():
        assert line.endswith(":/"), "the cgroup namespace hides where the sandbox lies"


def test_a_process_cannot_protect_itself_from_the_memory_killer(walls: Walls) -> None:
    ran = walls.run(["sh", "-c", "echo -1000 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj"])
    assert int(ran.out) >= 0


def test_a_crash_runs_and_writes_nothing(walls: Walls) -> None:
    out = walls.run(["sh", "-c", "ulimit -Hc; mkdir -p /tmp/crash; cd /tmp/crash; sh -c 'kill -SEGV $$'; ls -A"]).out
    assert out.splitlines()[:1] == ["0"]
    assert out.splitlines()[1:] == []


def test_overlay_marks_cannot_be_forged(walls: Walls) -> None:
    code = "import os\nopen('/tmp/mark', 'w').close()\n"
    code += "for n in ('opaque', 'redirect', 'metacopy', 'origin'):\n"
    code += "    try: os.setxattr('/tmp/mark', 'trusted.overlay.' + n, b'/etc'); print('set', n)\n"
    code += "    except OSError as e: print(e.errno)\n"
    assert set(python(walls, code).split()) <= {"1", "95"}


# -- runtime -----------------------------------------------------------------------------------------------------------


def test_no_descriptor_of_the_host_is_inherited(walls: Walls) -> None:
    out = walls.run(
        ["sh", "-c", "for d in /proc/self/fd/*; do readlink $d; done; for d in /proc/1/fd/*; do readlink $d; done"]
    )
    targets = [line for line in out.out.splitlines() if not re.match(r"(pipe|socket|anon_inode):", line)]
    assert set(targets) <= {"/dev/null"} | {line for line in targets if re.fullmatch(r"/proc/\d+/fd(/\d+)?", line)}


def test_the_program_of_the_first_process_cannot_be_written(walls: Walls) -> None:
    """Writing the runtime through /proc/self/exe was CVE-2019-5736."""
    code = """
import errno, os
own = ('/.kennel/lib/loader', '/.kennel/bin/python3', '/.kennel/guest/__main__.py')
for path in ('/proc/1/exe', '/proc/self/exe', *own):
    for flags in (os.O_WRONLY, os.O_RDWR):
        try:
            os.close(os.open(path, flags)); print('opened', os.path.realpath(path))
        except OSError as e:
            print(errno.errorcode[e.errno])
"""
    out = python(walls, code)
    allowed = {"ETXTBSY", "EROFS", "EACCES", "ENOENT", "EPERM"}
    assert {line.split()[0] for line in out.splitlines()} <= allowed


# -- network, IPC ------------------------------------------------------------------------------------------------------


def test_abstract_sockets_of_the_host_cannot_be_reached(walls: Walls) -> None:
    name = f"kennel-attack-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen()
        with socket.socket(socket.AF_UNIX) as own:
            own.connect("\0" + name)
        code = f"import socket\ns = socket.socket(socket.AF_UNIX)\ntry: s.connect('\\0{name}'); print('reached')\n"
        code += "except OSError as e: print(e.errno)\nprint(open('/proc/net/unix').read())"
        out = python(walls, code)
        assert out.split()[0] == "111"
        assert name not in out


def test_services_of_the_host_cannot_be_reached(walls: Walls) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        code = "import socket\n"
        code += f"for host in ('127.0.0.1', '127.0.0.2', '{own_address()}', '169.254.169.254', '0.0.0.0'):\n"
        code += "    s = socket.socket(); s.settimeout(1)\n"
        code += f"    try: s.connect((host, {port})); print('answered')\n"
        code += "    except OSError as e: print('no')\n"
        # The gateway answers in place of what lies outside; nothing of it may arrive at the host's own socket.
        assert len(python(walls, code).split()) == 5
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def test_root_inside_cannot_change_its_network(walls: Walls) -> None:
    for words in ("ip link set lo down", "ip link add d0 type dummy", "ip addr add 10.0.0.1/8 dev lo",
                  "ip route add default dev lo", "ip netns add x"):  # fmt: skip
        ran = walls.run(words.split())
        assert ran.code != 0, words
    ran = walls.run(["sh", "-c", "command -v nft >/dev/null && nft list ruleset && echo listed"])
    assert "listed" not in ran.out


def test_packets_cannot_be_forged(walls: Walls) -> None:
    code = "import socket\nfor f, t, p in ((2, 3, 1), (2, 3, 6), (10, 3, 58), (17, 3, 3), (17, 2, 0)):\n"
    code += "    try: socket.socket(f, t, p); print('made', f)\n    except OSError as e: print(e.errno)\n"
    assert set(python(walls, code).split()) <= {"1", "97"}


def test_message_queues_and_shared_memory_are_the_sandboxs_own(walls: Walls) -> None:
    name = f"kennel-{uuid.uuid4().hex}"
    path = Path("/dev/shm") / name
    path.write_text("x")
    try:
        assert name not in walls.run(["ls", "-A", "/dev/shm", "/dev/mqueue"]).out
    finally:
        path.unlink()


# -- what the next start finds -----------------------------------------------------------------------------------------


def test_mount_points_cannot_be_replaced_for_the_next_start(walls: Walls) -> None:
    """Several flaws of runtimes begin with a /dev or /proc that is a link; a running sandbox cannot make one."""
    script = """
for place in /dev /proc /sys /usr /workspace /.kennel /dev/shm; do
    mountpoint -q $place || continue
    mv $place $place.moved 2>/dev/null && echo "moved $place"
    rmdir $place 2>/dev/null && echo "removed $place"
    umount -l $place 2>/dev/null && echo "unmounted $place"
    ln -sfnT /tmp $place 2>/dev/null && echo "replaced $place"
    echo tried
done
"""
    seen = walls.run(["sh", "-c", script]).out.split("\n")
    assert len(seen) >= 5
    assert set(seen) == {"tried", ""}
