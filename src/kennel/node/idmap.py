"""Owns user namespaces that exist only to carry an id mapping for `mount_setattr`.

Called by rootfs, pack and stack. Invariant: the child that makes the namespace is gone, and reaped, before the call
returns.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kennel.domain.container import ID_RANGE
from kennel.node import linux


@contextmanager
def mapping(id_base: int, *, reverse: bool = False) -> Iterator[int]:
    """A descriptor of a user namespace that maps 0…65535 to `id_base`… (or back); closed on leaving."""
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
    descriptor = -1
    try:
        os.close(ready_write)
        if os.read(ready_read, 1) != b"1":
            raise OSError("this kernel refused a user namespace (user.max_user_namespaces?)")
        for kind in ("uid_map", "gid_map"):
            with open(f"/proc/{pid}/{kind}", "w") as stream:
                stream.write(f"{id_base} 0 {ID_RANGE}\n" if reverse else f"0 {id_base} {ID_RANGE}\n")
        descriptor = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for end in (ready_read, done_read, done_write):
            os.close(end)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
