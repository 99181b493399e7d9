"""Owns taking turns: a lock of each half, under names that differ as the halves do.

Used by both halves' sockets. Invariant: none; it is a lock.
"""

from __future__ import annotations

from asyncio import Lock as AsyncTurn
from threading import Lock as Turn

__all__ = ["AsyncTurn", "Turn"]
