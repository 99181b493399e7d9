"""Owns the rule of what a sandbox may write: the size of its disk, less what the layers below it hold.

Called by node when it starts a sandbox, by control before it rolls back or forks. Invariant: a sandbox can always be
started on what it itself wrote, with FLOOR bytes to work with, so that one that is full can delete.
"""

from __future__ import annotations

from kennel.domain.instance_type import INSTANCE_TYPES, MIB, InstanceType
from kennel.wire.errors import KennelError, error

FLOOR = 64 * MIB


def withheld(held: int, total: int) -> int:
    """Bytes of a disk, of `total` writable ones, that are kept from the sandbox because layers hold `held`."""
    return max(0, min(held, total - FLOOR))


def refusal(held: int, size: InstanceType) -> KennelError | None:
    """Why layers of `held` bytes are too many for this type, and which type would do; None when they fit."""
    if held <= size.disk:
        return None
    fit = next((each.name for each in INSTANCE_TYPES.values() if each.disk >= held), None)
    hint = "no instance type is large enough; roll back to a smaller snapshot"
    if fit is not None:
        hint = f"fork it to instance type {fit}, which is large enough, or roll back to a smaller snapshot"
    details = {"held": held, "disk": size.disk, "instanceType": size.name, "fits": fit}
    why = f"its files take {held} bytes, and the disk of a {size.name} sandbox has {size.disk}"
    return error("DISK_TOO_SMALL", why, details=details, hint=hint, admitted="no")
