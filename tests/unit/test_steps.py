"""Every effect of node lies in a step, so that the crash matrix reaches it; and what a watched step does."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kennel import steps

SOURCE = Path(steps.__file__).parent

HELD = (
    "node/unit.py", "node/rootfs.py", "node/disk.py", "node/netns.py", "node/cgroup.py", "node/record.py",
    "node/erofs.py", "node/uppers.py", "node/discarded.py", "node/guest_socket.py", "node/buckets/mounts.py",
    "adapters/oci/runtime.py",
)  # fmt: skip
"""The files whose every effect is a step of its own."""

EFFECTS = {
    "mount", "umount", "clone_mount_idmapped", "unshare", "sethostname", "attach", "mkdir", "rmdir", "unlink",
    "touch", "rename", "replace", "write_text", "write_bytes", "chmod", "chown", "rmtree", "bind", "copy_sparse",
    "_delete", "_write_through", "_spawn", "_kill", "thaw", "put_async", "delete_async", "_put", "_sync",
}  # fmt: skip
"""Names of functions and methods that change what outlives the process."""

PRIMITIVE = {
    "_short", "_delete", "_write_through", "_sync_folder", "_spawn", "copy_sparse", "_kill", "_reap", "_remove",
    "_loopback_up", "probe", "_try", "__init__", "_put", "_sync", "_sweep", "open_blobs",
}  # fmt: skip
"""Functions that are themselves one effect, called inside a step; and what node does once before it serves."""

QUIET = {
    "freezer": {"thaw"},
    "priority": {"favour"},
    "cgroup": {"find", "cpu_seconds", "memory", "pids", "oom_kills"},
    "guest_runtime": {"command", "ensure"},
    "linux": {"enter"},
    "loop": {"wait_released", "holder"},
    "own_thread": {"run"},
    "rootfs": {"Places", "require_folders"},
}
"""What unit may call of node's other files outside a step: it looks, or dies with the container, or is done before node
serves."""


class Finder(ast.NodeVisitor):
    """Calls of effects outside `with step(...)`."""

    def __init__(self) -> None:
        self.depth = 0
        self.found: list[tuple[int, str]] = []

    def visit_With(self, node: ast.With) -> None:
        stepped = any(_called(item.context_expr) == "step" for item in node.items)
        self.depth += stepped
        self.generic_visit(node)
        self.depth -= stepped

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name not in PRIMITIVE:
            self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        if node.name not in PRIMITIVE:
            self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if node.name not in PRIMITIVE:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _called(node)
        runs = name == "run" and ast.unparse(node.func) == "subprocess.run"
        if (name in EFFECTS or runs) and not self.depth and not _own(node):
            self.found.append((node.lineno, ast.unparse(node.func)))
        self.generic_visit(node)


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _own(node: ast.Call) -> bool:
    """A call of a function of a held file, which has its own steps."""
    return ast.unparse(node.func) in ("disk.mount", "self.uppers.mount")


def outside(path: str) -> list[tuple[int, str]]:
    finder = Finder()
    finder.visit(ast.parse((SOURCE / path).read_text()))
    return finder.found


@pytest.mark.parametrize("path", HELD)
def test_every_effect_is_inside_a_step(path: str) -> None:
    assert outside(path) == []


def test_the_search_finds_what_it_is_for() -> None:
    finder = Finder()
    finder.visit(ast.parse("with step('a'):\n    linux.mount(x)\nlinux.umount(x)\npath.unlink()\nsubprocess.run(x)\n"))
    assert [name for _, name in finder.found] == ["linux.umount", "path.unlink", "subprocess.run"]


def calls_of_other_files(tree: ast.AST) -> Iterator[tuple[str, str, bool]]:
    """(file, function, inside a step) of every call that unit makes into node's other files."""
    inside = {
        id(call)
        for block in ast.walk(tree)
        if isinstance(block, ast.With) and any(_called(item.context_expr) == "step" for item in block.items)
        for call in ast.walk(block)
    }
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "kennel.node"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            file, _, name = ast.unparse(node.func).partition(".")
            if file in imported and name:
                yield file, name, id(node) in inside


def test_unit_calls_nothing_unstepped_of_a_file_that_is_not_held() -> None:
    tree = ast.parse((SOURCE / "node/unit.py").read_text())
    strangers = [
        f"{file}.{name}"
        for file, name, stepped in calls_of_other_files(tree)
        if not stepped and f"node/{file}.py" not in HELD and name not in QUIET.get(file, set())
    ]
    assert strangers == []


def test_control_reaches_the_log_and_node_through_one_step_each() -> None:
    link = (SOURCE / "adapters/node_client/link.py").read_text()
    assert link.count("self._ask(") == 1
    assert "with step(_name, request):\n            return await self._ask(request" in link
    log = (SOURCE / "adapters/sql/event_log.py").read_text()
    assert log.count("self._writer.submit(") == 1
    assert "with step(_name, path, events):\n            self._writer.submit(" in log


def test_control_changes_blobs_inside_steps_only() -> None:
    finder = Finder()
    finder.visit(ast.parse((SOURCE / "adapters/blobs/store.py").read_text()))
    assert finder.found == []


def test_unwatched_a_step_is_nothing() -> None:
    def name(*_: object) -> str:
        raise AssertionError("nobody asked")

    with steps.step(name, "x"), steps.step("y"):
        pass
    begun = time.perf_counter()
    for _ in range(10_000):
        with steps.step("y", "z"):
            pass
    assert (time.perf_counter() - begun) / 10_000 < 20e-6  # 0.2 µs here


PROGRAM = """
import sys, time
from pathlib import Path
from kennel import steps
steps.watch(Path(sys.argv[1]))
for number in range(3):
    with steps.step("one", number % 2):
        print("in", number, flush=True)
    with steps.step(lambda word: "called " + word, "two"):
        time.sleep(0.2)
print("end", flush=True)
"""


def run(folder: Path, order: str | None) -> tuple[int, list[str]]:
    if order is not None:
        (folder / "crash-at").write_text(order)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stdout.splitlines()


def test_a_watched_process_notes_its_steps(tmp_path: Path) -> None:
    assert run(tmp_path, None) == (0, ["in 0", "in 1", "in 2", "end"])
    noted = [line.split(" ", 1)[1] for line in (tmp_path / "steps").read_text().splitlines()]
    assert noted[:4] == ["before one 0", "after one 0", "before called two", "after called two"]
    assert len(noted) == 12


@pytest.mark.parametrize(
    ("order", "printed"),
    [
        ("1 0 before one 0", []),
        ("1 0 after one 0", ["in 0"]),
        ("2 0 before one 0", ["in 0", "in 1"]),
        ("2 20 during called two", ["in 0", "in 1"]),
    ],
)
def test_a_watched_process_dies_where_it_is_told(tmp_path: Path, order: str, printed: list[str]) -> None:
    assert run(tmp_path, order) == (-signal.SIGKILL, printed)
    assert not os.path.exists(tmp_path / "crash-at")


@pytest.mark.parametrize("order", ["9 0 before one 0", "1 0 before other", "1 400 during called two"])
def test_an_order_that_is_not_met_kills_nothing(tmp_path: Path, order: str) -> None:
    assert run(tmp_path, order)[1][-1] == "end"
    assert (tmp_path / "crash-at").exists()
