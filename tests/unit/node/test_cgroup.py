"""Control groups on trees of plain files: version 1 as it is here, version 2 as it is elsewhere (not run on one)."""

from __future__ import annotations

from pathlib import Path

from kennel.node import cgroup


def _mounts(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "mounts"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_hybrid_machine_counts_as_version_1(tmp_path: Path) -> None:
    table = _mounts(
        tmp_path,
        "cgroup /cg/cpu cgroup rw,cpu,cpuacct 0 0",
        "cgroup /cg/memory cgroup rw,memory 0 0",
        "cgroup /cg/unified cgroup2 rw 0 0",
        "proc /proc proc rw 0 0",
    )
    tree = cgroup.find(table)
    assert tree.unified is None
    assert tree.v1["cpuacct"] == Path("/cg/cpu")


def test_version_1_limits_and_readings(tmp_path: Path) -> None:
    tree = cgroup.Tree({name: tmp_path / name for name in ("cpu", "memory", "pids", "cpuacct")}, None)
    for root in tree.v1.values():
        (root / "k/sb").mkdir(parents=True)
    cgroup.limit_cpu(tree, "k/sb", 62)
    assert (tmp_path / "cpu/k/sb/cpu.cfs_quota_us").read_text() == "6200"
    (tmp_path / "memory/k/sb/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    (tmp_path / "memory/k/sb/memory.usage_in_bytes").write_text("4096\n")
    (tmp_path / "pids/k/sb/pids.current").write_text("7\n")
    (tmp_path / "cpuacct/k/sb/cpuacct.usage").write_text("1500000000\n")
    assert (cgroup.oom_kills(tree, "k/sb"), cgroup.memory(tree, "k/sb"), cgroup.pids(tree, "k/sb")) == (3, 4096, 7)
    assert cgroup.cpu_seconds(tree, "k/sb") == 1.5


def test_version_2_limits_and_readings(tmp_path: Path) -> None:
    tree = cgroup.find(_mounts(tmp_path, f"cgroup2 {tmp_path}/two cgroup2 rw,nsdelegate 0 0"))
    assert tree.unified == tmp_path / "two"
    group = tmp_path / "two/k/sb"
    group.mkdir(parents=True)
    cgroup.limit_cpu(tree, "k/sb", 2000)
    assert (group / "cpu.max").read_text() == "200000 100000"
    (group / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    (group / "memory.current").write_text("8192\n")
    (group / "pids.current").write_text("2\n")
    (group / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert (cgroup.oom_kills(tree, "k/sb"), cgroup.memory(tree, "k/sb"), cgroup.pids(tree, "k/sb")) == (1, 8192, 2)
    assert cgroup.cpu_seconds(tree, "k/sb") == 2.5


def test_a_group_that_is_gone_reads_as_zero_and_is_removed_without_complaint(tmp_path: Path) -> None:
    tree = cgroup.Tree({name: tmp_path for name in ("memory", "pids", "cpuacct")}, None)
    assert (cgroup.oom_kills(tree, "k/x"), cgroup.memory(tree, "k/x"), cgroup.cpu_seconds(tree, "k/x")) == (0, 0, 0.0)
    cgroup.remove(tree, "k/x")
