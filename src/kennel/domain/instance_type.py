"""Owns the six instance types and what each may use; read by the API, the node and the docs.

Invariant: a type is configuration, never identity: it appears in no path. Sizes are those of the second seed
(`lite` … `standard-4`); bytes throughout, vCPU in thousandths.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024
GB = 1000 * 1000 * 1000


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One size: CPU in thousandths of a vCPU, memory and disk in bytes, the most processes at once."""

    name: str
    milli_cpu: int
    memory: int
    disk: int
    pids: int


DEFAULT = "basic"

INSTANCE_TYPES: dict[str, InstanceType] = {
    t.name: t
    for t in (
        InstanceType("lite", 62, 256 * MIB, 2 * GB, 512),
        InstanceType("basic", 250, 1024 * MIB, 4 * GB, 2048),
        InstanceType("standard-1", 500, 4096 * MIB, 8 * GB, 4096),
        InstanceType("standard-2", 1000, 6144 * MIB, 12 * GB, 8192),
        InstanceType("standard-3", 2000, 8192 * MIB, 16 * GB, 8192),
        InstanceType("standard-4", 4000, 12288 * MIB, 20 * GB, 16384),
    )
}
"""By name, smallest first. 1/16 vCPU is 62.5 thousandths; 62 is what a 100 ms period can express."""
