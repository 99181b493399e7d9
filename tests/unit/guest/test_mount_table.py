"""The names of mounts below a directory, whatever characters they have."""

from __future__ import annotations

from pathlib import Path

from kennel.guest import mount_table

TABLE = b"""22 1 0:20 / / rw - overlay kennel rw
23 22 0:21 / /workspace rw - overlay kennel rw
24 23 0:50 / /workspace/a\\040b\\134c rw,nosuid - fuse.s3fs bucket rw
25 23 0:51 / /workspace/deep/\xff rw - fuse.s3fs bucket rw
26 22 0:52 / /workspaces rw - tmpfs tmpfs rw
"""


def test_below(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(TABLE)
    assert mount_table.below("/workspace", str(table)) == {"a b\\c", "deep/\udcff"}
    assert mount_table.below("/workspace/deep/", str(table)) == {"\udcff"}
    assert mount_table.below("/etc", str(table)) == set()
    assert "workspace" in mount_table.below("/", str(table))
