"""Owns the network namespace of a sandbox: made by the host, bound to a file, with only a loopback link.

Called by unit. Invariant: it belongs to the host's user namespace, so root inside cannot change links or rules,
and it has no way out: no link leaves it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import threading
from pathlib import Path

from kennel.node import linux, own_thread
from kennel.steps import step

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def create(handle: Path) -> None:
    """Makes a namespace and keeps it by a bind mount on `handle`; a second call is a no-op."""
    if os.path.ismount(handle):
        return
    with step("touch netns"):
        handle.touch(mode=0o600)

    def work() -> None:
        with step("unshare netns"):
            linux.unshare(linux.CLONE_NEWNET)
            _loopback_up()
        with step("bind netns"):
            own = f"/proc/self/task/{threading.get_native_id()}/ns/net"
            linux.mount(own, str(handle), None, linux.MS_BIND)

    own_thread.run(work, "netns")


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(control, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def remove(handle: Path) -> None:
    """Lets the namespace go; the kernel ends it with its last process."""
    if os.path.ismount(handle):
        with step("unbind netns"):
            linux.umount(str(handle), linux.MNT_DETACH)
    with step("unlink netns"):
        handle.unlink(missing_ok=True)
