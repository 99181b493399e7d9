"""Owns user namespaces that exist only to carry an id mapping for `mount_setattr`.

Called by rootfs, pack and stack. Invariant: the child that makes the namespace is gone, and reaped, before the call
returns; the namespaces of the last KEPT mappings stay, since one says nothing but its numbers and costs a fork (5 ms).
"""

from __future__ import annotations

import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kennel.domain.container import ID_RANGE
from kennel.node import linux

KEPT = 64
_kept: OrderedDict[tuple[int, bool], int] = OrderedDict()
_FORKING = threading.Lock()
"""A child made meanwhile by another thread would hold this one's pipe, and each would wait for the other's end."""


@contextmanager
def mapping(id_base: int, *, reverse: bool = False) -> Iterator[int]:
    """A descriptor of a user namespace that maps 0…65535 to `id_base`… (or back); closed on leaving."""
    with _FORKING:
        if (id_base, reverse) not in _kept:
            _kept[id_base, reverse] = _make(id_base, reverse)
        _kept.move_to_end((id_base, reverse))
        descriptor = os.dup(_kept[id_base, reverse])
        while len(_kept) > KEPT:
            os.close(_kept.popitem(last=False)[1])
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make(id_base: int, reverse: bool) -> int:
    ready_read, ready_write = os.pipe()
    done_read, done_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        # Only async-signal-safe work: the node is threaded and another thread may hold any lock.
        try:
            linux.unshare(linux.CLONE_NEWUSER)
            os.write(ready_write, b"1")
            os.close(done_write)
            os.read(done_read, 1)
        finally:
            os._exit(0)
    try:
        os.close(ready_write)
        if os.read(ready_read, 1) != b"1":
            raise OSError("this kernel refused a user namespace (user.max_user_namespaces?)")
        for kind in ("uid_map", "gid_map"):
            with open(f"/proc/{pid}/{kind}", "w") as stream:
                stream.write(f"{id_base} 0 {ID_RANGE}\n" if reverse else f"0 {id_base} {ID_RANGE}\n")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for end in (ready_read, done_read, done_write):
            os.close(end)
        # Not left to the closed pipe: a process forked elsewhere in node may hold its other end.
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
