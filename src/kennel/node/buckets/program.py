"""Owns the walls around s3fs: its own user, root, no capability, the sandbox's network and the sandbox's limits.

Run by mounts as a process of its own, as root; it becomes s3fs. Invariant: s3fs never runs with a privilege, not even
to mount: the mount is made already, and what it takes for fusermount hands it the descriptor; it sees system libraries,
one scratch folder on the sandbox's disk and what the sandbox sees of trust; credentials are in its environment alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any, NoReturn

from kennel.node import linux, private_root
from kennel.node.buckets import filter

PROGRAM, HELPER = "/usr/bin/s3fs", "/usr/bin/fusermount"
"""s3fs, and what it starts for its mount."""
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_ETC = {
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "hosts: files dns\n",
    "passwd": "root:x:0:0::/tmp:/bin/false\n",
    "group": "root:x:0:\n",
}
_HANDING = """import os, socket, sys
"-u" in sys.argv or socket.send_fds(socket.socket(fileno=int(os.environ["_FUSE_COMMFD"])), [b"0"],
    [int(os.environ["KENNEL_FUSE"])])
"""
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> NoReturn:
    """Becomes s3fs as argv asks."""
    asked = json.loads(sys.argv[2])
    for folder in asked["groups"]:
        Path(folder, "cgroup.procs").write_text(str(os.getpid()))
    linux.enter(asked["netns"], linux.CLONE_NEWNET)
    mapped, ready = _mapper(asked["uid"])
    _new_root(asked)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    _drop(mapped, ready)
    own = {"PATH": "/usr/bin", "LANG": "C.UTF-8", "HOME": "/tmp", "KENNEL_FUSE": str(asked["fuse"])}
    given = {name: value for name, value in os.environ.items() if name.startswith("AWS")}
    os.set_inheritable(asked["fuse"], True)
    os.execve(PROGRAM, ["s3fs", *asked["words"]], {**own, **given})


def _mapper(uid: int) -> tuple[int, int]:
    """A child that writes this process's id maps when it is told that they are wanted: two pipe ends for that."""
    told_read, told_write = os.pipe()
    done_read, done_write = os.pipe()
    pid = os.getpid()
    if os.fork() == 0:
        try:
            os.close(told_write)
            os.read(told_read, 1)
            for kind in ("uid_map", "gid_map"):
                Path(f"/proc/{pid}/{kind}").write_text(f"0 {uid} 1\n")
            os.write(done_write, b"1")
        finally:
            os._exit(0)
    os.close(done_write)
    return done_read, told_write


def _drop(mapped: int, ready: int) -> None:
    """The only user of a user namespace of its own, and that without any capability in it."""
    os.setgroups([])
    linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWIPC)
    os.write(ready, b"1")
    if os.read(mapped, 1) != b"1":
        raise OSError("the id map was not written")
    os.wait()
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # EINVAL: past the last capability this kernel knows
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    filter.install()


def _new_root(asked: dict[str, Any]) -> None:
    root = Path(asked["stage"])
    private_root.begin(root)
    for name in ("null", "random", "urandom"):
        private_root.bind(Path("/dev", name), root / "dev" / name, 0)
    private_root.bind(Path(asked["runtime"]), root / asked["runtimeMount"].lstrip("/"), private_root.READ_ONLY)
    private_root.bind(Path(asked["scratch"]), root / "tmp", linux.MS_NODEV | linux.MS_NOEXEC)
    # Where libcurl looks by itself; s3fs reads CURL_CA_BUNDLE only after a request has failed.
    (root / "etc/ssl/certs").mkdir(parents=True)
    (root / "etc/ssl/certs/ca-certificates.crt").symlink_to(asked["bundle"])
    for name, text in {**_ETC, "resolv.conf": f"nameserver {asked['nameserver']}\n"}.items():
        (root / "etc" / name).write_text(text)
    for name in ("ld.so.cache", "mime.types"):
        if Path("/etc", name).exists():
            private_root.bind(Path("/etc", name).resolve(), root / "etc" / name, private_root.READ_ONLY)
    (root / "mnt").mkdir()
    os.chown(root / "mnt", asked["uid"], asked["uid"])
    handing = root / "etc" / "fusermount"
    interpreter = " ".join(asked["interpreter"])
    handing.write_text(f"#!/bin/sh\nexec {interpreter} -c '{_HANDING}' \"$@\"\n")
    handing.chmod(0o755)
    linux.mount(str(handing), f"{root}{HELPER}", None, linux.MS_BIND)
    private_root.enter(root)
