"""Owns the walls of the confined processes: empty root, namespaces without a network, few capabilities, system calls.

Called by process; standard library only. Invariant: after `close_in` the process can reach nothing but the descriptors
it holds: no path, no socket, no other process, no mount; what it may still do is read past file modes
(CAP_DAC_READ_SEARCH) and read the overlay's marks (CAP_SYS_ADMIN), or, for the one kind that deletes, remove names past
file modes and owners (CAP_DAC_OVERRIDE, CAP_FOWNER) below the one writable mount it holds.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
from typing import Final, NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)

_NEWNS, _NEWUTS, _NEWIPC, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = (
    1, 2, 4, 8, 32, 4096, 16384, 1 << 18,
)  # fmt: skip
_MNT_DETACH = 2
_PDEATHSIG, _KEEPCAPS, _SECCOMP, _CAPBSET_DROP, _DUMPABLE, _NO_NEW_PRIVS = 1, 8, 22, 24, 4, 38
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH, _CAP_FOWNER, _CAP_SYS_ADMIN = 1, 2, 3, 21
_NOBODY = 65534

# For each system call: x86_64, aarch64 (None: it does not exist there).
_CALLS: Final = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "stat": (4, None), "fstat": (5, 80), "lstat": (6, None),
    "poll": (7, None), "lseek": (8, 62), "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215),
    "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "pread64": (17, 67), "pwrite64": (18, 68), "sched_yield": (24, 124), "mremap": (25, 216), "madvise": (28, 233),
    "dup": (32, 23), "getpid": (39, 172), "sendfile": (40, 71), "sendto": (44, 206), "recvfrom": (45, 207),
    "sendmsg": (46, 211), "recvmsg": (47, 212), "exit": (60, 93), "fcntl": (72, 25), "fsync": (74, 82),
    "ftruncate": (77, 46), "gettimeofday": (96, 169), "gettid": (186, 178), "futex": (202, 98),
    "getdents64": (217, 61), "restart_syscall": (219, 128), "clock_gettime": (228, 113), "exit_group": (231, 94),
    "openat": (257, 56), "newfstatat": (262, 79), "readlinkat": (267, 78), "ppoll": (271, 73),
    "fgetxattr": (193, 10), "flistxattr": (196, 13), "syncfs": (306, 267), "getrandom": (318, 278),
    "statx": (332, 291), "rseq": (334, 293), "clock_nanosleep": (230, 115),
}  # fmt: skip
_DELETING: Final = {"unlinkat": (263, 35), "renameat": (264, 38), "renameat2": (316, 276)}


class Kind(NamedTuple):
    """What a job may do: its capabilities, and the system calls beyond those of all."""

    capabilities: tuple[int, ...]
    calls: tuple[tuple[int, int | None], ...] = ()


READS: Final = Kind((_CAP_DAC_READ_SEARCH, _CAP_SYS_ADMIN))
DELETES: Final = Kind((_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH, _CAP_FOWNER), tuple(_DELETING.values()))
KINDS: Final = (READS, DELETES)

_AUDIT = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_RET_ALLOW, _RET_EPERM, _RET_KILL = 0x7FFF0000, 0x00050001, 0x80000000
_LD, _JEQ, _JGE, _RET = 0x20, 0x15, 0x35, 0x06
_X32 = 0x40000000


def close_out() -> None:
    """Gives this process an empty root that cannot be written, and no network, before it serves anything."""
    _check(_libc.unshare(_NEWNS | _NEWUTS | _NEWIPC | _NEWNET), "unshare")
    _mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    # Any folder will do: the mount is seen by this namespace alone, and is about to be the root.
    _mount(b"kennel", b"/proc", b"tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, b"size=4k,mode=555")
    os.chdir("/proc")
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")
    _mount(b"none", b"/", None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None)


def own_processes() -> None:
    """The next child is PID 1 of a namespace of its own."""
    _check(_libc.unshare(_NEWPID), "unshare")


def die_with_parent(parent: int) -> None:
    """SIGKILL when the process that made this one ends, also if it just did; `parent` is its pid (0: not visible)."""
    _check(_libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:
        os._exit(1)


def limit(file_size: int, memory: int, seconds: int) -> None:
    """Bytes a file may grow to, bytes of memory, seconds of CPU."""
    for what, most in (
        (resource.RLIMIT_FSIZE, file_size),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))


def close_in(kind: Kind, allowed: bytes) -> None:
    """Drops everything but the capabilities of `kind` and the calls of `allowed` (from `program`)."""
    for capability in range(64):
        if capability not in kind.capabilities and _libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # EINVAL: past the last capability this kernel knows
    _check(_libc.prctl(_KEEPCAPS, 1, 0, 0, 0), "prctl")
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    # Again: a change of user clears it.
    _check(_libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    bits = sum(1 << capability for capability in kind.capabilities)
    _check(_libc.capset(struct.pack("=Ii", 0x20080522, 0), struct.pack("=6I", bits, bits, 0, 0, 0, 0)), "capset")
    _check(_libc.prctl(_DUMPABLE, 0, 0, 0, 0), "prctl")
    _check(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    held = ctypes.create_string_buffer(allowed, len(allowed))
    header = ctypes.create_string_buffer(struct.pack("=H6xQ", len(allowed) // 8, ctypes.addressof(held)))
    _check(_libc.prctl(_SECCOMP, 2, ctypes.c_ulong(ctypes.addressof(header)), 0, 0), "seccomp")


def program(kind: Kind) -> bytes:
    """The filter of system calls: what is not in the list answers EPERM, another architecture's calls kill."""
    column, audit = _AUDIT[platform.machine()]
    numbers = [pair[column] for pair in (*_CALLS.values(), *kind.calls) if pair[column] is not None]
    rows: list[tuple[int, int, int, int]] = [(_LD, 0, 0, 4), (_JEQ, 1, 0, audit), (_RET, 0, 0, _RET_KILL)]
    rows += [(_LD, 0, 0, 0), (_JGE, 0, 1, _X32), (_RET, 0, 0, _RET_KILL)]
    for number in numbers:
        rows += [(_JEQ, 0, 1, number or 0), (_RET, 0, 0, _RET_ALLOW)]
    rows.append((_RET, 0, 0, _RET_EPERM))
    return b"".join(struct.pack("=HBBI", *row) for row in rows)


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int, options: bytes | None) -> None:
    _check(_libc.mount(source, target, kind, ctypes.c_ulong(flags), options), f"mount {target!r}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
