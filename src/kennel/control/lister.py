"""Owns the list of what a snapshot leaves out, as a program: leftovers sends this file's text into the sandbox.

Run there by the guest's interpreter, as root; standard library only. Invariant: what it says is what git and the given
patterns leave out, and never a checkout within: its files are tracked, and git itself does not clean it away.

Arguments: the root of the walk, what is asked for (JSON), the most bytes to say, seconds. Exit codes: 0; 3 without a
git; 4 too much to say; 5 out of time. (Without the look by `check-ignore`, a directory all of whose files are ignored
would go, too.)
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

_NO_GIT, _TOO_MUCH, _LATE = 3, 4, 5
_HERE = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE"}
"""What a sandbox's own variables may say of one checkout is not true of every other."""


class Lister:
    """One walk of the tree."""

    def __init__(self, root: bytes, asked: dict[str, Any], most: int, seconds: float) -> None:
        self._root = root
        self._end, self._left, self._asked = time.monotonic() + seconds, most, asked
        self._patterns = [os.fsencode(each) for each in asked["patterns"]]
        self._git = os.fsencode(shutil.which("git") or "") if asked["gitignore"] else b""
        self._environment = {name: value for name, value in os.environ.items() if name not in _HERE}
        self._said: set[bytes] = set()
        self._checkouts: list[bytes] = []
        self._mounts = _mounts_in(root)

    def run(self) -> int:
        pending = [b""]
        while pending:
            folder = pending.pop()
            self._look_at_the_clock()
            try:
                entries = list(os.scandir(self._at(folder)))
            except OSError:
                continue  # it went away, or lies too deep to be named
            if self._git and any(entry.name == b".git" for entry in entries):
                self._checkout(folder)
            for entry in entries:
                path = _join(folder, entry.name)
                if path in self._mounts:
                    continue  # no part of what is packed; a look into it may take as long as a store likes
                # Named too, though the pack knows the name: only what is listed is deleted where it lies in a lower
                # layer.
                if (self._asked["nodeModules"] and entry.name == b"node_modules") or self._matches(path, entry.name):
                    self._say(path)
                elif entry.is_dir(follow_symlinks=False) and entry.name not in (b".git", b"node_modules"):
                    pending.append(path)
        self._part_checkouts()
        sys.stdout.buffer.writelines(path + b"\0" for path in sorted(self._said))
        sys.stdout.buffer.flush()
        return 0 if self._git or not self._asked["gitignore"] else _NO_GIT

    def _at(self, folder: bytes) -> bytes:
        return self._root + b"/" + folder if folder else self._root

    def _matches(self, path: bytes, name: bytes) -> bool:
        return any(fnmatch.fnmatchcase(path, each) or fnmatch.fnmatchcase(name, each) for each in self._patterns)

    def _say(self, path: bytes) -> None:
        self._left -= len(path) + 1
        if self._left < 0:
            sys.exit(_TOO_MUCH)
        self._said.add(path)

    def _look_at_the_clock(self) -> None:
        if time.monotonic() > self._end:
            sys.exit(_LATE)

    # Checkouts -------------------------------------------------------------------------------------------------------

    def _checkout(self, folder: bytes) -> None:
        """Lists what git ignores in `folder`, if git takes it for the top of a checkout."""
        if b"".join(self._ask(folder, [b"rev-parse", b"--show-prefix"])) != b"\n":
            return
        self._checkouts.append(folder)
        words = [b"ls-files", b"-z", b"--others", b"--ignored", b"--exclude-standard", b"--directory"]
        # Ignored directories are named and not entered.
        words += [b"--exclude=/" + _pattern(place) for place in self._mounts_below(folder)]
        folders: list[bytes] = []
        for path in _split(self._ask(folder, words)):
            if path.endswith(b"/"):
                folders.append(path[:-1])
            else:
                self._say(_join(folder, path))
            if len(folders) > self._left:
                sys.exit(_TOO_MUCH)
        while folders:
            folders = self._sift(folder, [each for each in folders if _join(folder, each) not in self._mounts])

    def _mounts_below(self, folder: bytes) -> list[bytes]:
        """The mounts in `folder`, named from there."""
        head = folder + b"/" if folder else b""
        return [place[len(head) :] for place in self._mounts if place.startswith(head)]

    def _sift(self, checkout: bytes, paths: list[bytes]) -> list[bytes]:
        """Says those of the paths that git ignores; the others that are directories come back as what is in them.

        A directory is in git's list also when all that git sees in it is ignored: it stays if it is not ignored itself.
        """
        words = [b"check-ignore", b"-z", b"--stdin"]
        ignored = set(_split(self._ask(checkout, words, b"".join(path + b"\0" for path in paths))))
        inner: list[bytes] = []
        for path in paths:
            if path in ignored:
                self._say(_join(checkout, path))
            elif _join(checkout, path) not in self._mounts:
                inner += _within(self._at(_join(checkout, path)), path)
            if len(inner) > self._left:
                sys.exit(_TOO_MUCH)
        return inner

    def _ask(self, folder: bytes, words: list[bytes], given: bytes = b"") -> Iterator[bytes]:
        """What git prints there, piece by piece; a git that fails has said all it knows."""
        options = [b"-c", b"safe.directory=*", b"-c", b"core.fsmonitor=false", b"-C", self._at(folder)]
        with open(os.memfd_create("paths"), "w+b") as stdin:
            stdin.write(given)
            stdin.seek(0)
            with subprocess.Popen(
                [self._git, *options, *words],
                stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self._environment,
            ) as child:  # fmt: skip
                while child.stdout is not None and (piece := child.stdout.read1(1 << 16)):  # type: ignore[attr-defined]
                    yield piece
                    self._look_at_the_clock()

    def _part_checkouts(self) -> None:
        """Names what lies around a checkout in place of the directory that holds both."""
        for checkout in self._checkouts:
            parts = checkout.split(b"/") if checkout else []
            for depth in range(1, len(parts) + 1):
                above = b"/".join(parts[:depth])
                if above in self._said:
                    self._said.discard(above)
                    for inner in range(depth, len(parts)):
                        self._say_others(b"/".join(parts[:inner]), parts[inner])

    def _say_others(self, folder: bytes, name: bytes) -> None:
        self._look_at_the_clock()
        for other in os.listdir(self._at(folder)):
            if other != name:
                self._say(_join(folder, other))


def _within(place: bytes, path: bytes) -> list[bytes]:
    """What git sees directly in the directory `place`, `path` put before: nothing if it is a checkout of its own."""
    try:
        entries = [] if os.path.islink(place) else list(os.scandir(place))
    except OSError:
        return []  # not a directory, or it went away
    if any(entry.name == b".git" for entry in entries):
        return []
    plain = [each for each in entries if each.is_symlink() or each.is_dir() or each.is_file()]
    return [_join(path, each.name) for each in plain]


def _mounts_in(root: bytes) -> set[bytes]:
    """What is mounted below `root`, named from there."""
    with open("/proc/self/mountinfo", "rb") as table:
        places = [re.sub(rb"\\([0-7]{3})", _octal, line.split(b" ")[4]) for line in table]
    head = root.rstrip(b"/") + b"/"
    return {place[len(head) :] for place in places if place.startswith(head)}


def _octal(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)])


def _pattern(path: bytes) -> bytes:
    """A path as a pattern of git's that means it alone."""
    return re.sub(rb"([\\*?\[\]!# ])", rb"\\\1", path) + b"/"


def _join(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name


def _split(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The records of a stream, each of which ends with a NUL."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\0")
        yield from whole


if __name__ == "__main__":
    root, asked, most, seconds = sys.argv[1:]
    sys.exit(Lister(os.fsencode(root), json.loads(asked), int(most), float(seconds)).run())
