"""The packages of a kernel are found by what they need of each other, and copied without what no context uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kennel.node import kernel_packages


def test_the_copy_alone_is_enough_for_a_kernel(tmp_path: Path) -> None:
    libraries = kernel_packages.copy(tmp_path)
    assert any(path.name.startswith("_zmq") for path in libraries)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import ipykernel.kernelapp, zmq; print(zmq.__file__)"
    words = [sys.executable, "-I", "-S", "-B", "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith(str(tmp_path)), done.stderr
    assert not (tmp_path / "debugpy").exists()


def test_the_stamp_names_every_version() -> None:
    names = {word.partition("=")[0].lower() for word in kernel_packages.stamp().split()}
    assert {"ipykernel", "pyzmq", "tornado"} <= names
    assert "debugpy" not in names


def test_the_extras_packages_come_along_where_they_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, needs in (("matplotlib", "Requires-Dist: made-up-arrays\n"), ("made-up-arrays", "")):
        folder = tmp_path / f"{name.replace('-', '_')}-9.9.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\n{needs}")
    before = kernel_packages.stamp()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {"matplotlib=9.9", "made-up-arrays=9.9"} <= set(kernel_packages.stamp().split())
    assert kernel_packages.stamp() != before
