"""The system call filter: its shape, its decision table, and that no two rules of one call ever disagree."""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.adapters.oci.confinement import CAPABILITIES, RLIMITS, oci_capabilities, oci_rlimits
from kennel.adapters.oci.seccomp import ARCHITECTURES, seccomp_profile
from kennel.adapters.oci.syscalls import ALLOWED, FILTERED, REFUSED, X86_64_ONLY

PROFILES = {arch: seccomp_profile(arch) for arch in ARCHITECTURES}
X86 = PROFILES["x86_64"]
HIGH = 1 << 32
ALLOW, ABSENT = 0, errno.ENOSYS


def holds(condition: dict[str, Any], args: tuple[int, ...]) -> bool:
    value = args[condition["index"]] if condition["index"] < len(args) else 0
    if condition["op"] == "SCMP_CMP_EQ":
        return bool(value == condition["value"])
    assert condition["op"] == "SCMP_CMP_MASKED_EQ"
    return bool(value & condition["value"] == condition["valueTwo"])


def matching(profile: dict[str, Any], name: str, args: tuple[int, ...]) -> list[dict[str, Any]]:
    return [rule for rule in profile["syscalls"] if name in rule["names"] and all(holds(c, args) for c in rule["args"])]


def decide(profile: dict[str, Any], name: str, *args: int) -> int:
    """0 when the call passes, else the errno it answers with."""
    answers = {int(rule.get("errnoRet", ALLOW)) for rule in matching(profile, name, args)}
    assert len(answers) <= 1, f"two rules disagree about {name}{args}"
    return answers.pop() if answers else int(profile["defaultErrnoRet"])


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_shape_is_an_allow_list_for_one_table(arch: str) -> None:
    profile = PROFILES[arch]
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert profile["defaultErrnoRet"] == errno.ENOSYS
    assert profile["architectures"] == [ARCHITECTURES[arch]]
    for rule in profile["syscalls"]:
        assert rule["action"] in ("SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO")
        assert ("errnoRet" in rule) == (rule["action"] == "SCMP_ACT_ERRNO")
        indices = [condition["index"] for condition in rule["args"]]
        assert len(indices) == len(set(indices)), "runc turns two conditions on one argument into an OR"


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(ValueError, match="riscv64"):
        seccomp_profile("riscv64")


def test_every_name_is_decided_once() -> None:
    names = [*ALLOWED, *REFUSED, *FILTERED]
    assert len(names) == len(set(names))
    for arch, profile in PROFILES.items():
        expected = set(names) - (X86_64_ONLY if arch == "aarch64" else set())
        assert {name for rule in profile["syscalls"] for name in rule["names"]} == expected
        plain = [name for rule in profile["syscalls"] if not rule["args"] for name in rule["names"]]
        assert len(plain) == len(set(plain))
        assert not set(plain) & set(FILTERED)


NEWER = """cachestat fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount mseal
setxattrat getxattrat listxattrat removexattrat open_tree_attr""".split()  # noqa: SIM905
"""Kernel 6.5 to 6.15; headers and libseccomp of Debian 12 do not have them yet."""


def headers() -> tuple[set[str], set[str]]:
    x86 = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    generic = Path("/usr/include/asm-generic/unistd.h")
    if not x86.is_file() or not generic.is_file():
        pytest.skip("no kernel headers (linux-libc-dev)")
    return (
        set(re.findall(r"#define __NR_(\w+)", x86.read_text())),
        set(re.findall(r"#define __NR(?:3264)?_(\w+)", generic.read_text())) | {"newfstatat"},
    )


def test_every_name_is_in_the_kernels_table() -> None:
    x86, generic = headers()
    unknown = {*ALLOWED, *REFUSED, *FILTERED} - x86 - generic - set(NEWER)
    assert not unknown
    assert x86 >= X86_64_ONLY
    missing_on_arm = {*ALLOWED, *REFUSED, *FILTERED} - X86_64_ONLY - generic - set(NEWER)
    assert not missing_on_arm


def test_libseccomp_resolves_every_name_of_this_machines_table() -> None:
    library = ctypes.util.find_library("seccomp")
    if library is None or os.uname().machine not in ARCHITECTURES:
        pytest.skip("no libseccomp")
    resolve = ctypes.CDLL(library).seccomp_syscall_resolve_name
    profile = PROFILES[os.uname().machine]
    names = {name for rule in profile["syscalls"] for name in rule["names"]} - set(NEWER)
    assert [name for name in sorted(names) if resolve(name.encode()) < 0] == []


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_dangerous_calls_are_refused_whatever_their_arguments(name: str) -> None:
    assert decide(X86, name) == errno.EPERM
    assert decide(X86, name, *[HIGH - 1] * 6) == errno.EPERM


@pytest.mark.parametrize(
    "name", ["clone3", "memfd_secret", "modify_ldt", "remap_file_pages", "uselib", "_sysctl", "vserver", "no_such_call"]
)
def test_unlisted_calls_do_not_exist(name: str) -> None:
    assert decide(X86, name) == ABSENT


FORK, THREAD = 0x01200011, 0x003D0F00
TABLE = [
    ("clone", (FORK,), ALLOW),
    ("clone", (THREAD,), ALLOW),
    ("clone", (FORK | HIGH,), ALLOW),
    *[
        ("clone", (FORK | flag,), errno.EPERM)
        for flag in (0x20000, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30)
    ],
    ("clone", (0x10000000 | HIGH,), errno.EPERM),
    ("unshare", (0x400,), ALLOW),
    ("unshare", (0x80,), errno.EPERM),
    ("unshare", (0x10000000,), errno.EPERM),
    ("socket", (1, 1, 0), ALLOW),
    ("socket", (2, 1, 0), ALLOW),
    ("socket", (2, 1, 6), ALLOW),
    ("socket", (10, 2, 17), ALLOW),
    ("socket", (2, 2, 1), ALLOW),
    ("socket", (2, 1, 262), errno.EPROTONOSUPPORT),
    ("socket", (2, 5, 132), errno.EPROTONOSUPPORT),
    ("socket", (2, 3, 255), errno.EPROTONOSUPPORT),
    ("socket", (2, 3, 47), ABSENT),
    ("socket", (16, 3, 0), ALLOW),
    ("socket", (16, 3, 9), errno.EPROTONOSUPPORT),
    ("socket", (16, 3, 12), errno.EPROTONOSUPPORT),
    *[("socket", (family, 3, 0), errno.EAFNOSUPPORT) for family in (0, 3, 15, 17, 21, 29, 30, 31, 38, 40, 43, 44, 45)],
    ("socket", (40 | HIGH, 1, 0), errno.EAFNOSUPPORT),
    ("socket", (1 | HIGH, 1, 0), ABSENT),
    ("socket", (65, 1, 0), ABSENT),
    ("socketpair", (1, 1, 0), ALLOW),
    ("socketpair", (2, 1, 0), errno.EAFNOSUPPORT),
    ("socketpair", (30, 1, 0), errno.EAFNOSUPPORT),
    ("ioctl", (0, 0x5413), ALLOW),
    ("ioctl", (0, 0x5401), ALLOW),
    ("ioctl", (0, 0x540E), ALLOW),
    ("ioctl", (0, 0xFFFFFFFF80045430), ALLOW),
    ("ioctl", (0, 0x5412), errno.EPERM),
    ("ioctl", (0, 0x541C), errno.EPERM),
    ("ioctl", (0, 0x5412 | HIGH), errno.EPERM),
    ("mknod", (0, 0x11A4), ALLOW),
    ("mknod", (0, 0xC1A4), ALLOW),
    ("mknod", (0, 0x21A4), errno.EPERM),
    ("mknod", (0, 0x61A4), errno.EPERM),
    ("mknodat", (3, 0, 0x11A4), ALLOW),
    ("mknodat", (3, 0, 0x61A4), errno.EPERM),
    ("personality", (0xFFFFFFFF,), ALLOW),
    ("personality", (0,), ALLOW),
    ("personality", (0x40000,), ALLOW),
    ("personality", (0x400000,), ABSENT),
    ("personality", (0x100000,), ABSENT),
]


@pytest.mark.parametrize(("name", "args", "expected"), TABLE)
def test_calls_decided_by_their_arguments(name: str, args: tuple[int, ...], expected: int) -> None:
    assert decide(X86, name, *args) == expected
    if name not in X86_64_ONLY:
        assert decide(PROFILES["aarch64"], name, *args) == expected


WORD = st.integers(0, 2**32 - 1) | st.sampled_from([0x5412, 0x541C, 1, 2, 16, 0x10000000])


@given(name=st.sampled_from(FILTERED), args=st.tuples(WORD, WORD, WORD), high=st.integers(0, 2**32 - 1))
def test_no_two_rules_of_a_call_disagree(name: str, args: tuple[int, int, int], high: int) -> None:
    decide(X86, name, *args)
    decide(X86, name, *(value | high << 32 for value in args))


@given(request=WORD, high=st.integers(0, 2**32 - 1))
def test_exactly_two_ioctl_requests_are_refused(request: int, high: int) -> None:
    expected = errno.EPERM if request in (0x5412, 0x541C) else ALLOW
    assert decide(X86, "ioctl", 0, request | high << 32) == expected


@given(flags=st.integers(0, 2**64 - 1))
def test_no_flag_of_clone_makes_a_namespace(flags: int) -> None:
    assert (decide(X86, "clone", flags) == ALLOW) == (not flags & 0x7E020000)


def test_capabilities_are_the_ten_and_never_inherited() -> None:
    assert len(CAPABILITIES) == 10
    held = oci_capabilities()
    assert set(held["bounding"]) == set(held["effective"]) == set(held["permitted"]) == set(CAPABILITIES)
    assert held["inheritable"] == held["ambient"] == []
    assert not {"CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_MKNOD", "CAP_SYS_PTRACE"} & set(CAPABILITIES)


def test_limits_never_exceed_those_of_the_starter() -> None:
    assert {limit["type"]: limit["hard"] for limit in oci_rlimits()} == RLIMITS
    assert {limit["type"]: limit["soft"] for limit in oci_rlimits({"RLIMIT_NOFILE": 20_000, "RLIMIT_CORE": -1})} == {
        **RLIMITS,
        "RLIMIT_NOFILE": 20_000,
    }
