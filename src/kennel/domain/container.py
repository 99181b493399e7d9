"""Owns what a container is before any runtime sees it: paths, namespaces, limits, the words that start the guest.

Built by node, turned into an OCI bundle by adapters/oci. Invariant: pure values; nothing here touches the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

ID_RANGE = 65536
"""How many user and group ids one sandbox has; its root is the first of them."""

RUNTIME_MOUNT = "/.kennel"
"""Where the guest's interpreter and code are seen inside, read-only."""

INTERPRETER = (
    f"{RUNTIME_MOUNT}/lib/loader",
    "--library-path",
    f"{RUNTIME_MOUNT}/lib",
    "--argv0",
    f"{RUNTIME_MOUNT}/bin/python3",
    f"{RUNTIME_MOUNT}/bin/python3",
    "-I",
    "-S",
    "-B",
)
"""How that interpreter is started inside, whatever the image has: by its own loader with its own libraries."""


@dataclass(frozen=True, slots=True)
class Bind:
    """One host directory shown inside at `target`."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """Everything a runtime needs to start one guest; sizes in bytes."""

    container: str
    bundle: str
    rootfs: str
    hostname: str
    id_base: int
    netns: str
    cgroup: str
    memory: int
    pids: int
    shm: int
    binds: tuple[Bind, ...]
    args: tuple[str, ...]
    given: tuple[str, ...] = ()
    """`NAME=value` of what every command inside is given, under its own variables."""
    env: tuple[str, ...] = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8")


@dataclass(frozen=True, slots=True)
class RuntimeFinding:
    """What a probe of one OCI runtime showed: usable or not, its version, and what to do about it."""

    name: str
    usable: bool
    version: str | None
    reason: str | None = None
    remedy: str | None = None
