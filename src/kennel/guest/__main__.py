"""Starts the guest: `python3 -I -S -B <folder>/__main__.py`, with the listening socket as descriptor 3.

Called by the container's runtime as PID 1. Invariant: the folder alone is enough; it is imported as a package under
its own name, so that its files find each other here as they do on the host.
"""

from __future__ import annotations

import sys
from importlib import import_module

if __name__ == "__main__":
    parent, _, name = __file__.rpartition("/")[0].rpartition("/")
    sys.path.append(parent or "/")
    import_module(f"{name}.service").main()
