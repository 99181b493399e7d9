"""Owns the rule that says whether this machine takes one more sandbox (DESIGN 10 (6)).

Called by node with what it measured. Invariant: only the floor (free memory and disk) is reserved; promised CPU,
memory and disk may exceed the machine by the overcommit factors, and a refusal says what was asked and what is free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kennel.domain.instance_type import InstanceType
from kennel.wire.errors import KennelError, error

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Limits:
    """Overcommit factors and floors; `max_instances` by type name, absent means unlimited."""

    cpu: float = 16.0
    memory: float = 4.0
    disk: float = 8.0
    free_fraction: float = 0.10
    free_disk: int = 8 * GIB
    max_instances: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Machine:
    """What the machine has and what is free of it, in bytes and thousandths of a CPU."""

    milli_cpu: int
    memory: int
    memory_free: int
    disk: int
    disk_free: int


@dataclass(frozen=True, slots=True)
class Promised:
    """What live sandboxes were promised already; `instances` counts them by type."""

    milli_cpu: int = 0
    memory: int = 0
    disk: int = 0
    instances: Mapping[str, int] = field(default_factory=dict)


def refusal(asked: InstanceType, machine: Machine, promised: Promised, limits: Limits) -> KennelError | None:
    """Why one more of this type does not fit, or None."""
    cap = limits.max_instances.get(asked.name)
    running = promised.instances.get(asked.name, 0)
    if cap is not None and running >= cap:
        return _no(
            f"{running} of at most {cap} {asked.name} sandboxes are running", asked, machine, {"maxInstances": cap}
        )
    disk_floor = max(int(machine.disk * limits.free_fraction), limits.free_disk)
    if machine.memory_free < machine.memory * limits.free_fraction:
        return _no(
            "free memory is below the floor", asked, machine, {"floor": int(machine.memory * limits.free_fraction)}
        )
    if machine.disk_free < disk_floor:
        return _no("free disk is below the floor", asked, machine, {"floor": disk_floor})
    for name, have, used, want, factor in (
        ("CPU", machine.milli_cpu, promised.milli_cpu, asked.milli_cpu, limits.cpu),
        ("memory", machine.memory, promised.memory, asked.memory, limits.memory),
        ("disk", machine.disk, promised.disk, asked.disk, limits.disk),
    ):
        if used + want > have * factor:
            return _no(f"{name} is promised beyond the overcommit of {factor:g}x", asked, machine, {"promised": used})
    return None


def _no(why: str, asked: InstanceType, machine: Machine, more: dict[str, Any]) -> KennelError:
    details = {
        "asked": {"instanceType": asked.name, "milliCpu": asked.milli_cpu, "memory": asked.memory, "disk": asked.disk},
        "free": {"memory": machine.memory_free, "disk": machine.disk_free},
        **more,
    }
    hint = "put a sandbox to sleep or destroy one, or raise the overcommit settings"
    return error("NO_CAPACITY", f"no room for a {asked.name} sandbox: {why}", details=details, hint=hint, admitted="no")
