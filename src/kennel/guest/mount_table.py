"""Owns what is mounted inside, by name.

Used by programs that walk a tree and stay in it. Invariant: it reads the kernel's table and touches no mount: a look at
one may take as long as a store far away likes.
"""

from __future__ import annotations

import os
import re

_OCTAL = re.compile(rb"\\([0-7]{3})")


def below(top: str, table: str = "/proc/self/mountinfo") -> set[str]:
    """The places below `top` where something is mounted, named from there."""
    head = os.fsencode(top).rstrip(b"/") + b"/"
    with open(table, "rb") as lines:
        places = [_OCTAL.sub(lambda octal: bytes([int(octal[1], 8)]), line.split(b" ")[4]) for line in lines]
    return {os.fsdecode(place[len(head) :]) for place in places if place.startswith(head)}
