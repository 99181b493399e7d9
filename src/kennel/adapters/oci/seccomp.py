"""Owns the system call filter of every sandbox, as the OCI `linux.seccomp` object; no I/O.

Called by whoever writes an OCI bundle. Invariants: an allow-list; nothing depends on the image or the caller; the rules
of one call never disagree, for libseccomp keeps no promise about which of two overlapping rules wins; a comparison
that *allows* may look at 64 bits, one that *refuses* is only for a readable answer or looks at the 32 the kernel uses.
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from typing import Any

from kennel.adapters.oci.syscalls import ALLOWED, REFUSED, X86_64_ONLY

ARCHITECTURES: dict[str, str] = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
"""By `uname -m`. The 32-bit and x32 tables are in neither: a call through them kills the caller."""

Rule = dict[str, Any]

WORD = 0xFFFFFFFF

CLONE_NEW_CLONE = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, as `clone` reads them."""
CLONE_NEW_UNSHARE = (*CLONE_NEW_CLONE, 0x00000080)
"""`unshare` also knows CLONE_NEWTIME; in `clone` that bit is part of the exit signal."""

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
FAMILY_BITS = 6
"""Every address family of the kernel is under 64: those not allowed answer EAFNOSUPPORT, larger numbers ENOSYS."""
IP_PROTOCOLS = (0, 1, 6, 17, 58)
"""Default, ICMP, TCP, UDP, ICMPv6. A raw socket of one of them still needs a capability that nobody inside has."""
IP_PROTOCOLS_ABSENT = (33, 115, 132, 136, 255, 262)
"""DCCP, L2TP, SCTP, UDP-Lite, raw, MPTCP: programs that try these (Go tries MPTCP) expect a refusal they can read."""
NETLINK_ROUTE = 0
NETLINK_BITS = 5

PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0x40000, WORD)
"""PER_LINUX, PER_LINUX32, UNAME26 with either, ADDR_NO_RANDOMIZE (gdb and sanitizers), and the query."""

TIOCSTI, TIOCLINUX = 0x5412, 0x541C

S_IFMT = 0xF000
NODE_KINDS = (0x0000, 0x1000, 0x8000, 0xC000)
"""What mknod may make: regular files (two spellings), named pipes, sockets; never a device."""


def _equal(index: int, value: int) -> dict[str, Any]:
    return {"index": index, "value": value, "op": "SCMP_CMP_EQ"}


def _masked(index: int, mask: int, value: int) -> dict[str, Any]:
    """True when `argument & mask == value`; the OCI shape calls the mask `value` and the value `valueTwo`."""
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


def _allow(names: list[str], *args: dict[str, Any]) -> Rule:
    return {"names": names, "action": "SCMP_ACT_ALLOW", "args": list(args)}


def _refuse(names: list[str], number: int, *args: dict[str, Any]) -> Rule:
    return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": number, "args": list(args)}


def _namespaces(name: str, flags: tuple[int, ...]) -> list[Rule]:
    """Without any of `flags` it passes; with any of them it answers EPERM."""
    rules = [_allow([name], _masked(0, sum(flags), 0))]
    return rules + [_refuse([name], errno.EPERM, _masked(0, flag, flag)) for flag in flags]


def _others(index: int, bits: int, words: Collection[int]) -> list[dict[str, Any]]:
    """Conditions of which exactly one holds for every `bits`-wide word that is not in `words`, none for those in it.

    There is no masked "not equal": the complement is the branches that leave the binary tree of `words`.
    """
    conditions = []
    for bit in reversed(range(bits)):
        mask = (1 << bits) - (1 << bit)
        prefixes = {word & mask for word in words}
        siblings = {prefix ^ 1 << bit for prefix in prefixes} - prefixes
        conditions += [_masked(index, mask, sibling) for sibling in sorted(siblings)]
    return conditions


def _sockets() -> list[Rule]:
    """Unix, IPv4, IPv6 and routing netlink; everything else as on a kernel that lacks it."""
    families = (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)
    rules = [_allow(["socket", "socketpair"], _equal(0, AF_UNIX))]
    for family in (AF_INET, AF_INET6):
        rules += [_allow(["socket"], _equal(0, family), _equal(2, protocol)) for protocol in IP_PROTOCOLS]
        rules += [
            _refuse(["socket"], errno.EPROTONOSUPPORT, _equal(0, family), _equal(2, protocol))
            for protocol in IP_PROTOCOLS_ABSENT
        ]
    rules.append(_allow(["socket"], _equal(0, AF_NETLINK), _equal(2, NETLINK_ROUTE)))
    rules += [
        _refuse(["socket"], errno.EPROTONOSUPPORT, _equal(0, AF_NETLINK), other)
        for other in _others(2, NETLINK_BITS, (NETLINK_ROUTE,))
    ]
    rules += [_refuse(["socket"], errno.EAFNOSUPPORT, other) for other in _others(0, FAMILY_BITS, families)]
    return rules + [_refuse(["socketpair"], errno.EAFNOSUPPORT, other) for other in _others(0, FAMILY_BITS, (AF_UNIX,))]


def _nodes(name: str, mode: int) -> list[Rule]:
    """mknod by kind of file; argument `mode` carries it."""
    return [
        _allow([name], _masked(mode, S_IFMT, kind))
        if kind in NODE_KINDS
        else _refuse([name], errno.EPERM, _masked(mode, S_IFMT, kind))
        for kind in range(0, S_IFMT + 1, 0x1000)
    ]


def _ioctls() -> list[Rule]:
    """Every request but the two that put keystrokes into a terminal."""
    typing = (TIOCSTI, TIOCLINUX)
    rules = [_allow(["ioctl"], other) for other in _others(1, 32, typing)]
    return rules + [_refuse(["ioctl"], errno.EPERM, _masked(1, WORD, request)) for request in typing]


def seccomp_profile(arch: str) -> dict[str, Any]:
    """The filter for one machine type (`x86_64`, `aarch64`); ValueError for any other.

    A call that is not listed answers ENOSYS; the known dangerous ones EPERM.
    """
    if arch not in ARCHITECTURES:
        raise ValueError(f"no system call filter for {arch!r}; known: {', '.join(ARCHITECTURES)}")
    absent = X86_64_ONLY if arch == "aarch64" else frozenset()
    rules = [
        _allow([name for name in ALLOWED if name not in absent]),
        _refuse([name for name in REFUSED if name not in absent], errno.EPERM),
        *_namespaces("clone", CLONE_NEW_CLONE),
        *_namespaces("unshare", CLONE_NEW_UNSHARE),
        *_sockets(),
        *([] if "mknod" in absent else _nodes("mknod", 1)),
        *_nodes("mknodat", 2),
        *[_allow(["personality"], _equal(0, value)) for value in PERSONALITIES],
        *_ioctls(),
    ]
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.ENOSYS,
        "architectures": [ARCHITECTURES[arch]],
        "syscalls": rules,
    }
