"""Every forbidden system call, called from inside with plausible arguments, and what came back."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import pytest

from kennel.adapters.oci.syscalls import REFUSED

if TYPE_CHECKING:
    from walls import Walls

pytestmark = pytest.mark.root

NEW_TO_LIBSECCOMP = {"open_tree_attr", "statmount", "listmount"}
"""Unknown to libseccomp 2.5: the runtime drops the name, and the default answers ENOSYS."""
ABSENT = {"memfd_secret", "remap_file_pages", "modify_ldt", "uselib", "_sysctl", "clone3", "clone3-newuser",
          "no-such-call", "personality-read-implies-exec", "personality-mmap-page-zero",
          "socket-inet-high"}  # fmt: skip
FOREIGN = {"x32-getpid", "i386-getpid"}
FAMILIES = {1, 2, 10, 16}
OTHERS = {
    "socket-vsock-high": "EAFNOSUPPORT",
    "socket-packet-raw": "EAFNOSUPPORT",
    "socket-inet-raw-icmp": "EPERM",
    "socket-inet-raw-raw": "EPROTONOSUPPORT",
    "socket-inet-sctp": "EPROTONOSUPPORT",
    "socket-inet-mptcp": "EPROTONOSUPPORT",
    "socket-inet-tcp": "OK",
    "socket-inet6-udp": "OK",
    "socket-unix-stream": "OK",
    "socketpair-unix": "OK",
    "socketpair-tipc": "EAFNOSUPPORT",
    "socketpair-vsock": "EAFNOSUPPORT",
    "setns-pidfd": "EPERM",
    "ioctl-tiocsti": "EPERM",
    "ioctl-tiocsti-high": "EPERM",
    "ioctl-tioclinux": "EPERM",
    "ioctl-tiocgpgrp": "EBADF",
    "mknodat-char": "EPERM",
    "mknodat-block": "EPERM",
    "mknodat-whiteout": "EPERM",
    "mknodat-fifo": "OK",
    "mknod-char": "EPERM",
    "mknod-block": "EPERM",
    "unshare-files": "OK",
    "clone-fork": "OK",
    **dict.fromkeys(
        ("getpid", "memfd_create", "getrandom", "pidfd_open", "seccomp", "sched_yield", "landlock_create_ruleset"), "OK"
    ),
    **dict.fromkeys(
        ("personality-query", "personality-no-randomize", "ptrace-traceme", "kcmp-self", "chroot-root"), "OK"
    ),
}
NAMESPACES = ("newns", "newcgroup", "newuts", "newipc", "newuser", "newpid", "newnet")


def expected() -> dict[str, str]:
    """Name → answer; everything the probe prints is in here."""
    table = dict.fromkeys(REFUSED, "EPERM") | dict.fromkeys(NEW_TO_LIBSECCOMP, "EPERM ENOSYS")
    table |= dict.fromkeys(ABSENT, "ENOSYS") | dict.fromkeys(FOREIGN, "SIG31") | OTHERS
    table |= {f"socket-family-{n}": "OK" if n in FAMILIES else "EAFNOSUPPORT" for n in range(48)}
    table |= {f"socket-netlink-{n}": "EPROTONOSUPPORT" if n else "OK" for n in range(23)}
    for kind in ("unshare", "unshare-high", "clone", "clone-high", "clone-newuser"):
        table |= {f"{kind}-{name}": "EPERM" for name in NAMESPACES}
    return table | {"unshare-newtime": "EPERM", "unshare-high-newtime": "EPERM"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the probe's table is that of x86-64")
@pytest.mark.parametrize("uid", [0, 1000])
def test_every_forbidden_call_is_refused(walls: Walls, probe: bytes, uid: int) -> None:
    walls.put("/tmp/probe", probe)
    ran = walls.run(["/tmp/probe"], uid=uid)
    assert ran.code == 0, ran.err
    seen = dict(line.split(" ", 1) for line in ran.out.splitlines())
    table = expected()
    if uid:
        table["chroot-root"] = "EPERM"
    missing = set(table) - set(seen)
    assert not missing, "the probe does not try them"
    wrong = {name: (got, table.get(name)) for name, got in seen.items() if got not in table.get(name, "").split()}
    assert not wrong
