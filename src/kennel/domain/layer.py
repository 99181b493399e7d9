"""Owns what is known of one layer: its digest, its size, what is in it and what was left out.

Built by node when it packs, kept by control in events and snapshots. Invariant: the digest is the SHA-256 of the image,
64 hexadecimal digits; nothing else names a layer.
"""

from __future__ import annotations

import re

import msgspec

from kennel.wire.errors import error

_DIGEST = re.compile(r"[0-9a-f]{64}")


class LayerInfo(msgspec.Struct, rename="camel", frozen=True):
    """One layer. Sizes in bytes.

    `size` is the image's, `unpacked` what its files say they hold (holes count); `entries` counts names, marks of
    deletion too. `left_out` and `left_out_bytes` are what exclusions kept out.
    """

    digest: str
    size: int
    unpacked: int
    entries: int
    left_out: int = 0
    left_out_bytes: int = 0


def digest(value: str) -> str:
    """`value` if it is a layer's digest, else VALIDATION_FAILED."""
    if not _DIGEST.fullmatch(value):
        raise error("VALIDATION_FAILED", "a layer is named by the 64 hexadecimal digits of its SHA-256", admitted="no")
    return value
