"""Owns the OCI configuration of a sandbox: a pure function from ContainerSpec to the runtime's JSON.

Called by runtime. Invariant: every wall is in this one value: seven namespaces, a uid range of its own, the ten
capabilities of the design and no others, the seccomp allow-list, masked paths; no host path but image, disk and guest.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

from kennel.adapters.oci.confinement import MASKED_PATHS, READONLY_PATHS, oci_capabilities, oci_rlimits
from kennel.adapters.oci.seccomp import seccomp_profile
from kennel.domain.container import ID_RANGE, ContainerSpec

GIVEN = "KENNEL_GIVEN_"
"""What the guest finds under this prefix it gives to every command (guest/launch.py)."""


def config(spec: ContainerSpec, ceilings: Mapping[str, int]) -> dict[str, Any]:
    """The `config.json` of one sandbox; `ceilings` are the hard limits of whoever starts the runtime."""
    return {
        "ociVersion": "1.0.2",
        "hostname": spec.hostname,
        "root": {"path": spec.rootfs, "readonly": False},
        "process": _process(spec.args, (*spec.env, *(GIVEN + word for word in spec.given)), ceilings),
        "mounts": [*_own_mounts(spec.shm), *_binds(spec)],
        "linux": {
            **_walls(spec.id_base),
            "namespaces": [*_namespaces(), {"type": "network", "path": spec.netns}],
            "cgroupsPath": spec.cgroup,
            # CPU comes later (node's limit): at 1/16 vCPU the guest's start alone would take 400 ms.
            "resources": {
                "devices": [{"allow": False, "access": "rwm"}],
                "memory": {"limit": spec.memory},
                "pids": {"limit": spec.pids},
            },
        },
    }


def probe_config(root: str, ceilings: Mapping[str, int]) -> dict[str, Any]:
    """A container with the same walls over the host's `/usr` that runs `true`: does this runtime work here?"""
    binds = [
        {"destination": f"/{name}", "type": "bind", "source": f"/{name}", "options": ["rbind", "ro"]}
        for name in ("usr", "bin", "lib", "lib64")
    ]
    return {
        "ociVersion": "1.0.2",
        "hostname": "probe",
        "root": {"path": root, "readonly": False},
        "process": _process(("/bin/true",), ("PATH=/usr/bin:/bin",), ceilings),
        "mounts": [*_own_mounts(1 << 20), *binds],
        "linux": {
            **_walls(0x0FFF_0000),
            "namespaces": [*_namespaces(), {"type": "network"}],
            "resources": {"devices": [{"allow": False, "access": "rwm"}], "pids": {"limit": 16}},
        },
    }


def _process(args: tuple[str, ...], env: tuple[str, ...], ceilings: Mapping[str, int]) -> dict[str, Any]:
    return {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "args": list(args),
        "env": list(env),
        "cwd": "/",
        "capabilities": oci_capabilities(),
        "rlimits": oci_rlimits(ceilings),
        # The user namespace makes setuid programs harmless outside, and `sudo` must work inside.
        "noNewPrivileges": False,
    }


def _walls(id_base: int) -> dict[str, Any]:
    ids = [{"containerID": 0, "hostID": id_base, "size": ID_RANGE}]
    return {
        "uidMappings": ids,
        "gidMappings": ids,
        "seccomp": seccomp_profile(platform.machine()),
        "maskedPaths": list(MASKED_PATHS),
        "readonlyPaths": list(READONLY_PATHS),
        "rootfsPropagation": "rprivate",
    }


def _namespaces() -> list[dict[str, str]]:
    return [{"type": kind} for kind in ("user", "pid", "mount", "ipc", "uts", "cgroup")]


def _own_mounts(shm: int) -> list[dict[str, Any]]:
    hard = ["nosuid", "noexec", "nodev"]
    return [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": hard},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]},
        {
            "destination": "/dev/pts",
            "type": "devpts",
            "source": "devpts",
            "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        },
        # Memory, and charged as memory: the one writable place that is not on the disk.
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*hard, "mode=1777", f"size={shm}"]},
        {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": hard},
        # The network namespace is the host's, so the kernel refuses a sysfs; programs get an empty one.
        {"destination": "/sys", "type": "tmpfs", "source": "tmpfs", "options": [*hard, "ro", "mode=555", "size=4k"]},
    ]


def _binds(spec: ContainerSpec) -> list[dict[str, Any]]:
    return [
        {
            "destination": bind.target,
            "type": "bind",
            "source": bind.source,
            "options": ["bind", "nodev", *(("ro", "nosuid") if bind.read_only else ())],
        }
        for bind in spec.binds
    ]
