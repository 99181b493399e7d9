"""Owns the trees that snapshots are measured on: one script makes them in a sandbox and, for the floors, beside it.

Called by the benchmarks of snapshots and wakes. Invariant: one seed, so both trees have equal names, sizes and bytes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kennel import Sandbox

FILES = 10_000
CHANGED = 10

_MAKE = """
import os, random
dice = random.Random(7)
for number in range({files}):
    folder = f"tree/{{number % 100}}"
    os.makedirs(folder, exist_ok=True)
    with open(f"{{folder}}/{{number}}", "wb") as file:
        file.write(dice.randbytes(dice.randrange({most})))
"""
_CHANGE = """
import random
dice = random.Random({round})
for number in range({changed}):
    with open(f"tree/{{number}}/{{number}}", "wb") as file:
        file.write(dice.randbytes(2000))
"""
_FILL = """
import random
dice = random.Random(7)
with open("bulk", "wb") as file:
    for _ in range({megabytes}):
        file.write(dice.randbytes(1 << 20))
"""


def make() -> str:
    """Python that makes FILES files, 20 MB, in 100 folders of the working directory."""
    return _MAKE.format(files=FILES, most=4096)


def change(number: int) -> str:
    """Python that changes CHANGED of them, other bytes for another `number`."""
    return _CHANGE.format(round=number, changed=CHANGED)


def fill(megabytes: int) -> str:
    """Python that writes one file of so many megabytes that nothing can compress."""
    return _FILL.format(megabytes=megabytes)


def within(box: Sandbox, script: str) -> None:
    """Runs such a script in a sandbox's /workspace."""
    result = box.exec(argv=["python3", "-c", script], cwd="/workspace", timeout=600)
    if result.exit_code != 0:
        raise RuntimeError(f"the tree could not be made: {result.stderr[-500:]}")


def beside(folder: Path, script: str) -> None:
    """Runs such a script in a folder of this machine."""
    subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, timeout=600)
