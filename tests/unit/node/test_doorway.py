"""What the process in a sandbox reads of its mount table, in which an attacker chose the names."""

from __future__ import annotations

import os
from pathlib import Path

from kennel.node.buckets import doorway

TABLE = b"""22 1 0:20 / / rw - overlay kennel rw
24 23 0:50 / /workspace/a\\040b/\xff rw,nosuid - fuse.s3fs bucket rw
25 23 0:51 / /workspace/other rw - fuse.s3fs 0:50 rw
26 22 0:50 / /proc/kcore rw - tmpfs 0:50 rw
27 24 0:50 / /workspace/a\\040b/\xff rw - fuse.s3fs bucket rw
short
"""


def test_only_its_own_places_below_workspace_count_the_newest_first(tmp_path: Path) -> None:
    file = tmp_path / "mountinfo"
    file.write_bytes(TABLE)
    table = os.open(file, os.O_RDONLY)
    try:
        for _ in range(2):
            assert doorway._places(table, "0:50") == ["/workspace/a b/\udcff"] * 2
        assert doorway._places(table, "0:5") == []
    finally:
        os.close(table)
