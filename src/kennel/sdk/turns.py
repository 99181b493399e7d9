"""Owns taking turns: a lock of each half, under names that differ as the halves do.

Used by both halves' sockets. Invariant: none; it is a lock. The other half's is imported when it is asked for: asyncio
costs a command 18 ms of its start.
"""

from __future__ import annotations

from threading import Lock as Turn
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import Lock as AsyncTurn

__all__ = ["AsyncTurn", "Turn"]


def __getattr__(name: str) -> object:
    if name != "AsyncTurn":
        raise AttributeError(name)
    from asyncio import Lock

    return Lock
