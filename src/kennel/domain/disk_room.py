"""Owns the rule of what a sandbox may write: the size of its disk, less what the layers below it hold.

Called by node when it starts a sandbox, by control before it rolls back or forks. Invariant: a sandbox can be
started on the bytes it itself wrote, with some room to work with, so that one that is full can delete. (Names without
bytes, by the ten thousand, weigh more in a layer than on the disk, and can bring a full one over.)
"""

from __future__ import annotations

from kennel.domain.instance_type import INSTANCE_TYPES, MIB, InstanceType
from kennel.wire.errors import KennelError, error

FLOOR = 64 * MIB


def withheld(held: int, total: int, size: int) -> int:
    """Bytes kept from a sandbox whose layers hold `held`; its disk has `size`, of which `total` can be written.

    One that is full gets half of what is left up to `size`, where `refusal` begins, and FLOOR at most: however often it
    fills its disk and sleeps, it does not come to where it cannot be started.
    """
    room = total - held
    if room < FLOOR:
        room = min(FLOOR, max(size - held, 0) // 2, total)
    return total - room


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
