"""Owns which installed packages make a Jupyter kernel, and their copy for the sandboxes.

Called by guest_runtime. Invariants: the packages are those the lock file pinned for this interpreter, so their compiled
parts fit it; an installation without ipykernel copies nothing, and its contexts say so.
"""

from __future__ import annotations

import re
import shutil
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = "ipykernel"
CHARTS = ("matplotlib", "pandas")
"""The extra `charts`: where they are installed beside Kennel, contexts have them, too."""
_LEFT_OUT = frozenset({"debugpy", "jedi", "parso", "cffi", "pycparser"})
"""Imported only where they are there: a debugger and completions no context offers, 60 MB and 6,000 files of all."""
_NAME = re.compile(r"^[A-Za-z0-9._-]+")
_SKIPPED = frozenset({"tests", "test"})


def distributions() -> list[Distribution]:
    """ipykernel, the extra's packages and all they need, by name; empty when there is no ipykernel."""
    found: dict[str, Distribution] = {}
    wanted = [*CHARTS, ROOT]
    while wanted:
        name = wanted.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found or key in _LEFT_OUT:
            continue
        try:
            found[key] = distribution(name)
        except PackageNotFoundError:
            if name == ROOT:
                return []
            continue  # for another system or another Python; the lock decided that
        wanted.extend(_required(found[key]))
    return [found[key] for key in sorted(found)]


def _required(package: Distribution) -> list[str]:
    """The names of what a package needs without any of its extras."""
    names = []
    for line in package.requires or []:
        match = _NAME.match(line)
        if match is not None and "extra ==" not in line:
            names.append(match.group())
    return names


def stamp() -> str:
    """Changes when a package or its version does."""
    return " ".join(f"{package.name}={package.version}" for package in distributions())


def copy(target: Path) -> list[Path]:
    """Puts the packages' files below `target`; the compiled libraries among them."""
    libraries = []
    for package in distributions():
        for file in package.files or []:
            if file.parts[0] == ".." or _SKIPPED & set(file.parts):
                continue
            source, place = Path(str(package.locate_file(file))), target.joinpath(*file.parts)
            if not source.is_file():
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            _take(source, place)
            if ".so" in file.suffixes:
                libraries.append(place)
    return libraries


def _take(source: Path, place: Path) -> None:
    """One file under a second name: pip replaces files and never writes into them. A copy on another file system."""
    try:
        place.hardlink_to(source)
    except OSError:
        # With its time: the compiled form beside it is valid for that time only.
        shutil.copy2(source, place)
