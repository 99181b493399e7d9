"""Owns the fixed parts of a sandbox's walls beside the system call filter: capabilities, limits, hidden /proc paths.

Called by whoever writes an OCI bundle. Invariant: the same for every sandbox and every image; nothing a caller or an
image says widens them. docs/isolation.md explains each entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CAPABILITIES: tuple[str, ...] = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
)
"""What root inside holds, in its own user namespace only."""

MASKED_PATHS: tuple[str, ...] = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/diskstats",
    "/proc/driver",
    "/proc/execdomains",
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/pagetypeinfo",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/schedstat",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/softirqs",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmallocinfo",
    "/proc/zoneinfo",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
)
"""Empty inside: facts about the machine and its other tenants. A runtime skips the ones this kernel does not have."""

READONLY_PATHS: tuple[str, ...] = (
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
)
"""Readable but never writable, whoever owns them."""

RLIMITS: dict[str, int] = {
    "RLIMIT_CORE": 1,
    "RLIMIT_MEMLOCK": 8 * 1024 * 1024,
    "RLIMIT_NOFILE": 65_536,
}
"""Soft and hard alike. A core limit of 1 byte is the only value for which the kernel neither writes a file nor starts a
piped `core_pattern` program, and that program would run on the host as root. Memory and processes are the cgroup's."""


def oci_rlimits(ceilings: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
    """The `process.rlimits` list, each at most its entry in `ceilings` (the hard limits of who starts the runtime).

    A runtime sets them from inside the user namespace, where nobody may raise a hard limit: asking for more than the
    starter has fails the start. -1 in `ceilings` is RLIM_INFINITY.
    """
    known = ceilings or {}
    limits = []
    for name, wanted in RLIMITS.items():
        ceiling = known.get(name, -1)
        value = wanted if ceiling < 0 else min(wanted, ceiling)
        limits.append({"type": name, "soft": value, "hard": value})
    return limits


def oci_capabilities() -> dict[str, list[str]]:
    """The `process.capabilities` object: bounding, effective and permitted alike, nothing inheritable or ambient."""
    held = list(CAPABILITIES)
    return {"bounding": held, "effective": list(held), "permitted": list(held), "inheritable": [], "ambient": []}
