"""Owns the table of published advisories of runc, crun and runsc; read by advisories.py alone.

Invariant: a fact that was not found is left out and said to be unknown, never guessed. `fixed_in` are upstream
releases, one for each series that got the fix; `debian_fixed` are Debian revisions that patch that very release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Known:
    """One row. `since` is the first affected release, "" for "from the beginning"."""

    id: str
    runtime: str
    summary: str
    fixed_in: tuple[str, ...]
    mitigated: Literal["yes", "partly", "no"]
    because: str
    since: str = ""
    debian_fixed: tuple[str, ...] = ()


_DEBIAN_12 = "1.1.5+ds1-1+deb12u1"
_NO_EXEC = "Kennel never runs 'exec' in a container: its guest starts programs from inside"
_FRESH_DEV = "every sandbox gets a fresh /dev, and nothing of it runs while the runtime mounts"
_USERNS = "root inside is an unprivileged user outside, and the files this needs belong to root outside"
_FROM_IMAGE = (
    "only an image can hold such a link (a running sandbox cannot replace its own mount points), images are built by "
    "the administrator, and the runtime's set-up runs with the sandbox's ids"
)
_NO_CHECKPOINT = "Kennel neither checkpoints nor restores processes"
_NO_KRUN = "Kennel does not use crun's virtual machine handler"

_RUNC = (
    Known("CVE-2019-5736", "runc", "a container overwrites the runtime's binary", ("1.0.0-rc7",), "yes", _USERNS),
    Known(
        "CVE-2021-30465",
        "runc",
        "a mount target swapped for a symbolic link lands on the host",
        ("1.0.0-rc95",),
        "yes",
        "no two sandboxes share a writable tree, and nothing of a sandbox runs while its mounts are made",
        debian_fixed=("1.0.0~rc94+ds1-2",),
    ),
    Known(
        "CVE-2021-43784",
        "runc",
        "an overflowing netlink message weakens a container's namespaces",
        ("1.0.3",),
        "yes",
        "the bundle is written by node; no word of a caller reaches its namespaces or id mappings",
    ),
    Known("CVE-2022-29162", "runc", "'exec --cap' leaves inheritable capabilities", ("1.1.2",), "yes", _NO_EXEC),
    Known(
        "CVE-2023-25809",
        "runc",
        "/sys/fs/cgroup is writable in rootless containers",
        ("1.1.5",),
        "yes",
        "Kennel's containers have their own cgroup namespace and no cgroup mount",
    ),
    Known(
        "CVE-2023-27561",
        "runc",
        "a symbolic link at /proc undoes masked paths",
        ("1.1.5",),
        "yes",
        _FROM_IMAGE,
        since="1.0.0-rc95",
    ),
    Known("CVE-2023-28642", "runc", "a symbolic link at /proc undoes AppArmor's label", ("1.1.5",), "yes", _FROM_IMAGE),
    Known(
        "CVE-2024-21626",
        "runc",
        "a leaked descriptor as working directory reaches the host's files",
        ("1.1.12",),
        "yes",
        "the first process always starts in / with a program of Kennel's own read-only mount; " + _NO_EXEC,
        debian_fixed=(_DEBIAN_12,),
    ),
    Known(
        "CVE-2024-45310",
        "runc",
        "a shared volume makes runc create empty files on the host",
        ("1.1.14", "1.2.0-rc.3"),
        "yes",
        "no two sandboxes share a writable tree",
    ),
    Known(
        "CVE-2025-31133",
        "runc",
        "/dev/null swapped for a link makes masked paths writable",
        ("1.2.8", "1.3.3", "1.4.0-rc.3"),
        "yes",
        f"{_FRESH_DEV}; {_USERNS}",
    ),
    Known(
        "CVE-2025-52565",
        "runc",
        "/dev/console mounted over a link makes /proc files writable",
        ("1.2.8", "1.3.3", "1.4.0-rc.3"),
        "yes",
        f"the container has no terminal of the runtime's, so no console is mounted; {_USERNS}",
    ),
    Known(
        "CVE-2025-52881",
        "runc",
        "writes to /proc are redirected to other /proc files",
        ("1.2.8", "1.3.3", "1.4.0-rc.3"),
        "yes",
        f"it needs containers that share mounts, and Kennel's do not; {_USERNS}",
    ),
    Known(
        "CVE-2026-41579",
        "runc",
        "an image whose /dev is a link makes runc create links on the host",
        ("1.3.6", "1.4.3", "1.5.0-rc.3"),
        "partly",
        f"{_FROM_IMAGE}, so it reaches world-writable folders only",
    ),
    Known(
        "CVE-2026-119101",
        "runc",
        "'restore' mounts a folder of the host that an image names",
        ("1.3.7", "1.4.4", "1.5.3", "1.6.0-rc.2"),
        "yes",
        _NO_CHECKPOINT,
    ),
)

_CRUN = (
    Known(
        "CVE-2019-18837",
        "crun",
        "a symbolic link in an image reaches files of the host",
        ("0.10.5",),
        "partly",
        _FROM_IMAGE,
    ),
    Known("CVE-2022-27650", "crun", "'exec' sets inheritable capabilities", ("1.4.4",), "yes", _NO_EXEC),
    Known("CVE-2025-24965", "crun", "an image escapes its root by the krun handler", ("1.20",), "yes", _NO_KRUN),
    Known("CVE-2026-30892", "crun", "'exec --user 1' runs as root", ("1.27",), "yes", _NO_EXEC, since="1.19"),
    Known(
        "CVE-2026-84042",
        "crun",
        "the krun handler runs a container's program as root outside",
        ("1.30",),
        "yes",
        _NO_KRUN,
        since="1.29",
    ),
    Known(
        "CVE-2026-88264",
        "crun",
        "/dev/console as a link makes crun create a file on the host",
        ("1.30",),
        "yes",
        _FRESH_DEV,
    ),
    Known(
        "CVE-2026-88265",
        "crun",
        "/dev/null as a link opens a file of the host for writing",
        ("1.30",),
        "yes",
        _FRESH_DEV,
    ),
    Known(
        "CVE-2026-115520",
        "crun",
        "'restore' mounts a folder of the host that an image names",
        ("1.31",),
        "yes",
        _NO_CHECKPOINT,
    ),
    Known(
        "CVE-2026-115521",
        "crun",
        "an image redirects the runtime's read-only remount, leaving its root writable",
        ("1.31",),
        "yes",
        "a sandbox's root is writable anyway; what is read-only is mounted so from the start",
    ),
)

_RUNSC = (
    Known(
        "CVE-2025-2713",
        "runsc",
        "files are opened with too many permissions until the first fork",
        ("20250319.0",),
        "partly",
        "node alone starts the runtime, and shows it only the sandbox's own files",
    ),
)

KNOWN: tuple[Known, ...] = (*_RUNC, *_CRUN, *_RUNSC)
