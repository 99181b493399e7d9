"""Owns the folder mounted read-only at `/.kennel`: interpreter, loader, libraries, guest, a Jupyter kernel's packages.

Called once at the node's start. Invariant: it depends on nothing in the sandbox's image (the loader is started by
path with its own library path), so it works on an image without Python and on musl; it is named by its contents.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from kennel.domain.container import INTERPRETER, RUNTIME_MOUNT
from kennel.node import kernel_packages

_SKIP = shutil.ignore_patterns(
    "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages", "config-*", "*.a",
    "_test*.so", "_ctypes_test*.so", "xxlimited*.so", "_tkinter*.so",
)  # fmt: skip
_CODE = frozenset((".py", ".mjs", ".cjs"))
_LIBRARY = re.compile(r"^\s*(?:(\S+) => )?(/\S+) \(0x", re.M)


def ensure(parent: Path) -> Path:
    """The runtime's folder under `parent`, made if it is not there."""
    name = _digest()
    target = parent / name
    if target.exists():
        return target
    parent.mkdir(parents=True, exist_ok=True)
    fresh = parent / f".{name}.{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    _fill(fresh)
    os.chmod(fresh, 0o755)
    os.rename(fresh, target)
    return target


def command() -> tuple[str, ...]:
    """What PID 1 is started as, inside."""
    return (*INTERPRETER, f"{RUNTIME_MOUNT}/guest/__main__.py")


def _interpreter() -> Path:
    return Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"


def _guest_source() -> Path:
    return Path(__file__).parent.parent / "guest"


def _digest() -> str:
    found = hashlib.sha256(f"3 {sys.version} {_interpreter()} {kernel_packages.stamp()}".encode())
    for path in sorted(path for path in _guest_source().rglob("*") if path.suffix in _CODE):
        found.update(str(path.relative_to(_guest_source())).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def _libraries(binaries: Iterable[Path]) -> dict[str, Path]:
    """Name → file of every shared library `binaries` need, their loader under `loader`."""
    words = ["ldd", *map(str, binaries)]  # one process for all 76: one each took half a second
    listing = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stdout
    found: dict[str, Path] = {}
    for name, path in _LIBRARY.findall(listing):
        found[name or "loader"] = Path(path)
    return found


def _fill(target: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (target / "bin").mkdir(parents=True)
    library = target / "lib"
    library.mkdir()
    interpreter = target / "bin" / "python3"
    shutil.copyfile(_interpreter().resolve(), interpreter)
    interpreter.chmod(0o755)
    standard = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(standard, library / version, ignore=_SKIP, symlinks=False)
    extensions = (library / version / "lib-dynload").glob("*.so")
    needed = _libraries([_interpreter(), *extensions, *kernel_packages.copy(target / "kernel")])
    for name, path in needed.items():
        if target in path.parents:
            continue  # a library that a package brings for itself
        shutil.copyfile(path.resolve(), library / name)
        (library / name).chmod(0o755)
    # The interpreter looks for its library folder beside its bin; `guest` is a package beside both.
    shutil.copytree(_guest_source(), target / "guest", ignore=shutil.ignore_patterns("__pycache__"))
    # unchecked-hash: the folder never changes, so the import need not stat sources (2 ms of the guest's start).
    words = [str(_interpreter()), "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*words, str(target / "guest")], check=True, timeout=120, stdin=subprocess.DEVNULL)
    for folder, _, files in os.walk(target):
        os.chmod(folder, 0o755)
        for file in files:
            path = Path(folder, file)
            path.chmod(path.stat().st_mode | 0o444)
