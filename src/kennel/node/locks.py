"""Owns the locks of sandboxes, by id.

Called by unit. Invariant: there is one lock of a name while somebody holds or waits for it, and nothing otherwise.
"""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary


class Locks:
    """A lock for each name that somebody holds or waits for; nothing is kept of the others."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()

    def of(self, name: str) -> threading.Lock:
        """The one lock of this name; keep it while it is of use."""
        with self._guard:
            found = self._locks.get(name)
            if found is None:
                found = self._locks[name] = threading.Lock()
            return found
