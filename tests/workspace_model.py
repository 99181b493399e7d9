"""Owns a model of /workspace in Python, and the hand that does the same to the real one.

Used by the state machine of sleeps. Invariant: the model knows nothing of layers but the one thing that the kernel
lets a sandbox see of them: a name of a hard link that came from a layer is parted from the others when it changes.
"""

from __future__ import annotations

import copy
import hashlib
import json
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Op = list[Any]
REPO, IGNORE = b"repo", b"repo/.gitignore"
IGNORES = (b"*.o\nout/\n", b"", b"*.o\n!keep.o\n/a\n", b"**/out\n")
"""What the checkout's .gitignore says, by turns; `_ignored` knows each."""
_NAMES = (
    b"a", b"b", b"c", b"out", b"node_modules", b"x.o", b"keep.o", b"odd\n\xff name", "ü*[?".encode(), b"n" * 255,
)  # fmt: skip
_MODES = (0o644, 0o600, 0o755, 0o4755, 0o2711, 0o1777, 0o000)
_OWNERS = (0, 1000, 65535)
_SIZES = (0, 1, 100, 4096, 5000, 70_000)

HAND = r"""
import json, os, shutil, stat, sys
def at(path):
    return b"/workspace/" + path.encode("latin-1") if path else b"/workspace"
def body(spec):
    return bytes([spec[0]]) * spec[1]
def settle(path, words):
    os.chown(path, words["uid"], words["gid"], follow_symlinks=False)
    if not os.path.islink(path):
        os.chmod(path, words["mode"])
    if not os.path.isdir(path) or os.path.islink(path):
        os.utime(path, ns=(words["mtime"], words["mtime"]), follow_symlinks=False)
for kind, name, *words in json.load(sys.stdin):
    path = at(name)
    if kind == "mkdir":
        os.mkdir(path)
    elif kind in ("write", "append"):
        with open(path, "wb" if kind == "write" else "ab") as stream:
            stream.write(body(words[1]))
    elif kind == "text":
        with open(path, "wb") as stream:
            stream.write(words[1].encode("latin-1"))
    elif kind == "truncate":
        os.truncate(path, words[1])
    elif kind == "symlink":
        os.symlink(words[1].encode("latin-1"), path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "setxattr":
        os.setxattr(path, words[1], words[2].encode("latin-1"))
    elif kind == "removexattr":
        os.removexattr(path, words[1])
    elif kind == "remove":
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    elif kind == "link":
        os.link(path, at(words[0]), follow_symlinks=False)
    elif kind == "rename":
        os.rename(path, at(words[0]))
    if kind not in ("remove", "link", "rename"):
        settle(path, words[0])
"""
LOOK = r"""
import hashlib, json, os, stat, sys
root, rows = b"/workspace", {}
def see(path, key):
    info = os.lstat(path)
    text = "latin-1"
    body = None
    if stat.S_ISREG(info.st_mode):
        body = hashlib.sha256(open(path, "rb").read()).hexdigest()
    elif stat.S_ISLNK(info.st_mode):
        body = os.readlink(path).decode(text)
    marks = {a: os.getxattr(path, a, follow_symlinks=False).decode(text)
             for a in sorted(os.listxattr(path, follow_symlinks=False)) if a.startswith("user.")}
    rows[key.decode(text)] = [info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns, body, marks,
                              [info.st_dev, info.st_ino]]
see(root, b"")
pending = [b""]
while pending:
    folder = pending.pop()
    for name in os.listdir(os.path.join(root, folder)):
        key = os.path.join(folder, name)
        path = os.path.join(root, key)
        see(path, key)
        if stat.S_ISDIR(os.lstat(path).st_mode):
            pending.append(key)
json.dump(rows, sys.stdout)
"""


@dataclass
class Inode:
    """One file, directory, link or pipe. `own`: it lies in the upper, where all its names are one file."""

    kind: int
    mode: int
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    body: bytes = b""
    marks: dict[str, bytes] = field(default_factory=dict)
    own: bool = True

    def words(self) -> dict[str, int]:
        return {"mode": self.mode, "uid": self.uid, "gid": self.gid, "mtime": self.mtime}

    def row(self) -> list[Any]:
        body = hashlib.sha256(self.body).hexdigest() if self.kind == stat.S_IFREG else None
        body = self.body.decode("latin-1") if self.kind == stat.S_IFLNK else body
        mode = 0o777 if self.kind == stat.S_IFLNK else self.mode
        marks = {name: self.marks[name].decode("latin-1") for name in sorted(self.marks)}
        time = None if self.kind == stat.S_IFDIR else self.mtime
        return [self.kind | mode, self.uid, self.gid, time, body, marks]


class Model:
    """The tree by path; `b""` is the root. `change` makes one change and says what the hand has to do."""

    def __init__(self) -> None:
        self.tree: dict[bytes, Inode] = {b"": Inode(stat.S_IFDIR, 0o755)}
        self.clock = 1_700_000_000_123_456_789

    def copy(self) -> Model:
        return copy.deepcopy(self)

    def packed(self) -> Model:
        """The tree as it is once it lies in layers."""
        made = self.copy()
        for inode in made.tree.values():
            inode.own = False
        return made

    def without(self, *, git: bool) -> Model:
        """The tree without what a pack leaves out."""
        made = self.copy()
        said = self.tree[IGNORE].body if git else b""
        for path in list(made.tree):
            if _left_out(self.tree, path, said):
                del made.tree[path]
        return made

    def rows(self) -> dict[bytes, list[Any]]:
        """What is to be seen, hard links as groups of names."""
        groups: dict[int, list[bytes]] = {}
        for path, inode in self.tree.items():
            if inode.kind != stat.S_IFDIR:
                groups.setdefault(id(inode), []).append(path)
        return {path: [*inode.row(), sorted(groups.get(id(inode), []))] for path, inode in self.tree.items()}

    # Changes -----------------------------------------------------------------------------------------------------

    def found(self) -> list[Op]:
        """Makes the checkout, as `git init` does."""
        done = [self._add(path, stat.S_IFDIR, 0o755) for path in (REPO, b"repo/.git")]
        done += [self._add(b"repo/.git/" + name, stat.S_IFDIR, 0o755) for name in (b"objects", b"refs")]
        done += [self._text(b"repo/.git/HEAD", b"ref: refs/heads/main\n"), self._text(IGNORE, IGNORES[0])]
        return done

    def change(self, kind: str, one: int, two: int, three: int) -> Op | None:
        """One change, with numbers to choose by; None when there is nothing to do it to."""
        return getattr(self, f"_{kind}")(one, two, three)  # type: ignore[no-any-return]

    def _free(self, path: bytes) -> bool:
        """Whether the path is not one of those that make the checkout one."""
        return path not in (b"", REPO, IGNORE) and not path.startswith(b"repo/.git/") and path != b"repo/.git"

    def _pick(self, number: int, wanted: Callable[[Inode], bool]) -> bytes | None:
        pool = [path for path in sorted(self.tree) if self._free(path) and wanted(self.tree[path])]
        return pool[number % len(pool)] if pool else None

    def _fresh(self, number: int, name: int, *, folder: bool = False) -> bytes | None:
        pool = [
            path for path in sorted(self.tree)
            if self.tree[path].kind == stat.S_IFDIR and path.count(b"/") < 4 and not path.startswith(b"repo/.git")
        ]  # fmt: skip
        within, names = pool[number % len(pool)], _NAMES[:-1] if folder else _NAMES
        path = _join(within, names[name % len(names)])
        return None if path in self.tree else path

    def _add(self, path: bytes, kind: int, mode: int, body: bytes = b"", owner: int = 0) -> Op:
        self.clock += 1_000_000_007
        inode = self.tree[path] = Inode(kind, mode, owner, owner, self.clock, body)
        return ["mkdir", path.decode("latin-1"), inode.words()]

    def _text(self, path: bytes, text: bytes) -> Op:
        self._add(path, stat.S_IFREG, 0o644, text)
        return ["text", path.decode("latin-1"), self.tree[path].words(), text.decode("latin-1")]

    def _mine(self, path: bytes) -> Inode:
        """The inode, copied up for this name alone if it lay in a layer; with a new time."""
        inode = self.tree[path]
        if not inode.own:
            inode = self.tree[path] = copy.deepcopy(inode)
            inode.own = True
        self.clock += 1_000_000_007
        inode.mtime = self.clock
        return inode

    def _mkdir(self, one: int, two: int, three: int) -> Op | None:
        path = self._fresh(one, two, folder=True)
        mode, owner = (0o755, 0o700, 0o1777, 0o2750)[three % 4], _OWNERS[three % 3]
        return None if path is None else self._add(path, stat.S_IFDIR, mode, owner=owner)

    def _make(self, one: int, two: int, three: int) -> Op | None:
        path = self._fresh(one, two)
        if path is None:
            return None
        spec = [three % 251, _SIZES[three % len(_SIZES)]]
        body = bytes([spec[0]]) * spec[1]
        self._add(path, stat.S_IFREG, _MODES[three % len(_MODES)], body, _OWNERS[three % 3])
        return ["write", path.decode("latin-1"), self.tree[path].words(), spec]

    def _symlink(self, one: int, two: int, three: int) -> Op | None:
        path = self._fresh(one, two)
        if path is None:
            return None
        target = (b"/etc/passwd", b"../" * 20 + b"etc", b"y" * 4000, b"a", b"\xfe\n")[three % 5]
        self._add(path, stat.S_IFLNK, 0o777, target, _OWNERS[three % 3])
        return ["symlink", path.decode("latin-1"), self.tree[path].words(), target.decode("latin-1")]

    def _fifo(self, one: int, two: int, three: int) -> Op | None:
        path = self._fresh(one, two)
        if path is None:
            return None
        self._add(path, stat.S_IFIFO, 0o640)
        return ["fifo", path.decode("latin-1"), self.tree[path].words()]

    def _write(self, one: int, two: int, three: int) -> Op | None:
        path = self._pick(one, _regular)
        if path is None:
            return None
        inode, spec = self._mine(path), [two % 251, _SIZES[three % len(_SIZES)]]
        inode.body = bytes([spec[0]]) * spec[1]
        return ["write", path.decode("latin-1"), inode.words(), spec]

    def _append(self, one: int, two: int, three: int) -> Op | None:
        path = self._pick(one, _regular)
        if path is None:
            return None
        inode = self._mine(path)
        inode.body += bytes([two % 251]) * 100
        return ["append", path.decode("latin-1"), inode.words(), [two % 251, 100]]

    def _truncate(self, one: int, two: int, three: int) -> Op | None:
        path = self._pick(one, _regular)
        if path is None:
            return None
        inode, size = self._mine(path), (0, 10, 4096, 9000)[two % 4]
        inode.body = inode.body[:size].ljust(size, b"\0")
        return ["truncate", path.decode("latin-1"), inode.words(), size]

    def _chmod(self, one: int, two: int, three: int) -> Op | None:
        path = self._pick(one, lambda inode: inode.kind != stat.S_IFLNK)
        if path is None:
            return None
        inode = self._mine(path)
        inode.mode = _MODES[two % len(_MODES)] if inode.kind != stat.S_IFDIR else (0o755, 0o2770, 0o1700)[two % 3]
        return ["settle", path.decode("latin-1"), inode.words()]

    def _chown(self, one: int, two: int, three: int) -> Op | None:
        path = self._pick(one, lambda inode: True)
        if path is None:
            return None
        inode = self._mine(path)
        inode.uid, inode.gid = _OWNERS[two % 3], _OWNERS[three % 3]
        return ["settle", path.decode("latin-1"), inode.words()]

    def _xattr(self, one: int, two: int, three: int) -> Op | None:
        path = self._pick(one, lambda inode: inode.kind in (stat.S_IFREG, stat.S_IFDIR))
        if path is None:
            return None
        inode, name = self._mine(path), ("user.a", "user.long.name")[two % 2]
        if name in inode.marks and three % 3 == 0:
            del inode.marks[name]
            return ["removexattr", path.decode("latin-1"), inode.words(), name]
        inode.marks[name] = bytes([three % 256]) * (three % 300)
        return ["setxattr", path.decode("latin-1"), inode.words(), name, inode.marks[name].decode("latin-1")]

    def _remove(self, one: int, two: int, three: int) -> Op | None:
        path = self._pick(one, lambda inode: True)
        if path is None:
            return None
        for each in [each for each in self.tree if each == path or each.startswith(path + b"/")]:
            del self.tree[each]
        return ["remove", path.decode("latin-1")]

    def _link(self, one: int, two: int, three: int) -> Op | None:
        source, target = self._pick(one, lambda inode: inode.kind != stat.S_IFDIR), self._fresh(two, three)
        if source is None or target is None:
            return None
        self.tree[target] = self._raised(source)
        return ["link", source.decode("latin-1"), target.decode("latin-1")]

    def _rename(self, one: int, two: int, three: int) -> Op | None:
        source = self._pick(one, lambda inode: True)
        target = None if source is None else self._fresh(two, three, folder=self.tree[source].kind == stat.S_IFDIR)
        if source is None or target is None or (target + b"/").startswith(source + b"/"):
            return None
        deepest = max(each.count(b"/") for each in self.tree if (each + b"/").startswith(source + b"/"))
        if target.count(b"/") + deepest - source.count(b"/") > 6:
            return None
        self._move(source, target)
        return ["rename", source.decode("latin-1"), target.decode("latin-1")]

    def _replace(self, one: int, two: int, three: int) -> Op | None:
        """A file renamed over another, as editors do."""
        source, target = self._pick(one, _flat), self._pick(two, _flat)
        if source is None or target is None or self.tree[source] is self.tree[target]:
            return None
        self._move(source, target)
        return ["rename", source.decode("latin-1"), target.decode("latin-1")]

    def _ignore(self, one: int, two: int, three: int) -> Op | None:
        return self._text(IGNORE, IGNORES[one % len(IGNORES)])

    def _raised(self, path: bytes) -> Inode:
        """As `_mine`, with the time it had."""
        time = self.tree[path].mtime
        inode = self._mine(path)
        inode.mtime = time
        return inode

    def _move(self, source: bytes, target: bytes) -> None:
        if self.tree[source].kind != stat.S_IFDIR:
            self._raised(source)
        for each in [each for each in self.tree if each == source or each.startswith(source + b"/")]:
            self.tree[target + each[len(source) :]] = self.tree.pop(each)


CHANGES = (
    "mkdir", "make", "make", "symlink", "fifo", "write", "append", "truncate", "chmod", "chown", "xattr", "remove",
    "link", "rename", "rename", "replace", "ignore",
)  # fmt: skip


def seen(rows: dict[str, list[Any]]) -> dict[bytes, list[Any]]:
    """What LOOK printed, as `Model.rows` has it."""
    groups: dict[tuple[int, int], list[bytes]] = {}
    for path, row in rows.items():
        if not stat.S_ISDIR(row[0]):
            groups.setdefault(tuple(row[6]), []).append(path.encode("latin-1"))
    return {
        path.encode("latin-1"): [
            *row[:3], None if stat.S_ISDIR(row[0]) else row[3], *row[4:6], sorted(groups.get(tuple(row[6]), [])),
        ]
        for path, row in rows.items()
    }  # fmt: skip


def words(operations: list[Op]) -> str:
    return json.dumps(operations)


def _join(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name


def _regular(inode: Inode) -> bool:
    return inode.kind == stat.S_IFREG


def _flat(inode: Inode) -> bool:
    return inode.kind != stat.S_IFDIR


def _left_out(tree: dict[bytes, Inode], path: bytes, said: bytes) -> bool:
    parts = path.split(b"/")
    if b"node_modules" in parts:
        return True
    if parts[0] != REPO or len(parts) < 2 or parts[1] in (b".git", b".gitignore"):
        return False
    for count in range(2, len(parts) + 1):
        kind = tree[b"/".join(parts[:count])].kind
        if kind != stat.S_IFIFO and _ignored(said, parts[count - 1], count == 2, kind == stat.S_IFDIR):
            return True
    return False


def _ignored(said: bytes, name: bytes, top: bool, folder: bool) -> bool:
    if said == IGNORES[0]:
        return name.endswith(b".o") or (folder and name == b"out")
    if said == IGNORES[2]:
        return (name.endswith(b".o") and name != b"keep.o") or (top and name == b"a")
    return said == IGNORES[3] and name == b"out"
