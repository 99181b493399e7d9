"""Owns the system calls that s3fs does not get: kernel features that a reader of a store needs none of.

Called by program, before it becomes s3fs; standard library only. Invariant: what is refused is refused for all it
starts, for ever; calls of another architecture's numbers kill.
"""

from __future__ import annotations

import ctypes
import platform
import struct
from typing import Final

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

# For each system call: x86_64, aarch64.
_REFUSED: Final = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "acct": (163, 89), "settimeofday": (164, 170),
    "adjtimex": (159, 171), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "syslog": (103, 116),
    "fanotify_init": (300, 262), "personality": (135, 92), "move_pages": (279, 239), "migrate_pages": (256, 238),
    "mbind": (237, 235), "memfd_secret": (447, 447), "vhangup": (153, 58),
}  # fmt: skip
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_NAMESPACES = 0x7E02_0000
_FAMILIES = (1, 2, 10, 16)
"""Unix, both of IP, and netlink, by which the C library learns which addresses there are."""

_AUDIT = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_ALLOW, _EPERM, _ENOSYS, _KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST = 0, 4, 16
_X32 = 0x40000000


def program() -> bytes:
    """The filter for this machine."""
    column, audit = _AUDIT[platform.machine()]
    rows: list[tuple[int, int, int, int]] = [
        (_LD, 0, 0, _ARCH), (_JEQ, 1, 0, audit), (_RET, 0, 0, _KILL), (_LD, 0, 0, _NUMBER),
        (_JGE, 0, 1, _X32), (_RET, 0, 0, _KILL),
    ]  # fmt: skip
    for numbers in _REFUSED.values():
        rows += [(_JEQ, 0, 1, numbers[column]), (_RET, 0, 0, _EPERM)]
    # Its flags lie in memory, which a filter cannot read; without it the C library uses clone.
    rows += [(_JEQ, 0, 1, _CLONE3[column]), (_RET, 0, 0, _ENOSYS)]
    rows += [(_JEQ, 0, 4, _CLONE[column]), (_LD, 0, 0, _FIRST), (_JSET, 0, 1, _NAMESPACES), (_RET, 0, 0, _EPERM)]
    rows += [(_RET, 0, 0, _ALLOW)]
    left = len(_FAMILIES)
    rows += [(_JEQ, 0, left + 3, _SOCKET[column]), (_LD, 0, 0, _FIRST)]
    rows += [(_JEQ, left - at, 0, family) for at, family in enumerate(_FAMILIES)]
    rows += [(_RET, 0, 0, _EPERM), (_RET, 0, 0, _ALLOW), (_RET, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *row) for row in rows)


def install() -> None:
    """Puts it on this process, which has no_new_privs."""
    code = program()
    held = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("=H6xQ", len(code) // 8, ctypes.addressof(held)))
    if _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_ulong(ctypes.addressof(header)), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")
