"""Starts the program that keeps a sandbox's code contexts: descriptor 0 is its listening Unix socket.

Started by the guest's operation `interpreter`. Invariant: the runtime's folder alone is enough; its packages are behind
the guest's own files.
"""

from __future__ import annotations

import sys
from importlib import import_module

if __name__ == "__main__":
    package, _, name = __file__.rpartition("/")[0].rpartition("/")
    runtime, _, guest = package.rpartition("/")
    sys.path += [runtime or "/", f"{runtime}/kernel"]
    import_module(f"{guest}.{name}.hub").main(f"{runtime}/kernel")
