"""Owns the program that saves a directory as a tar on standard output, and puts one back from standard input.

Started by the `archive.*` operations as a process of its own: `backup.py save|restore PATH OPTIONS`. Invariant: a tree
over its caps is refused before a byte goes out; a directory is replaced only when the whole archive, with the word that
ends it, has been unpacked beside it: whatever fails before that leaves it as it was.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tarfile
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

BLOCK = 256 * 1024
END = b"KENNEL ARCHIVE END\n"
STAGE = ".kennel-restore-"
_XATTR = "SCHILY.xattr."


class Refused(Exception):
    """A typed end."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _sibling(name: str) -> Any:
    """Another file of the guest's, which this program, started by its path, is a part of."""
    parent, _, package = __file__.rpartition("/")[0].rpartition("/")
    if (parent or "/") not in sys.path:
        sys.path.append(parent or "/")
    return import_module(f"{package}.{name}")


class Tree:
    """What of a directory is saved: all but what is mounted in it and the paths and names that are left out."""

    def __init__(self, top: str, options: dict[str, Any], listed: bytes) -> None:
        self.top, self._names = top, set(options["names"])
        self._out = {os.fsdecode(path) for path in listed.split(b"\0") if path}
        self._mounts = _sibling("mount_table").below(top)
        self._most_bytes, self._most_names = int(options["maxBytes"]), int(options["maxNames"])

    def walk(self) -> Any:
        """Every path and its name in the archive, directories before what is in them; links are not followed."""
        pending = [(self.top, "")]
        while pending:
            where, name = pending.pop()
            yield where, name or "."
            if not os.path.isdir(where) or (os.path.islink(where) and name):
                continue
            try:
                entries = sorted(os.listdir(where), reverse=True)
            except FileNotFoundError:
                continue
            for entry in entries:
                inner = f"{name}/{entry}" if name else entry
                left_out = inner in self._out or inner in self._mounts or entry in self._names
                if not left_out and not entry.startswith(STAGE):
                    pending.append((os.path.join(where, entry), inner))

    def check(self) -> None:
        """PACK_TOO_LARGE, by the name of the file that is too much."""
        size = 0
        for names, (where, name) in enumerate(self.walk(), 1):
            info = _stat(where)
            size += info.st_size if info is not None and (info.st_mode & 0o170000) == 0o100000 else 0
            if size > self._most_bytes:
                shown = os.fsencode(name)[:1000].decode("utf-8", "replace")
                raise Refused("PACK_TOO_LARGE", f"the tree is larger than {self._most_bytes} bytes, with {shown}")
            if names > self._most_names:
                raise Refused("PACK_TOO_LARGE", f"the tree has more than {self._most_names} names")


def _stat(where: str) -> os.stat_result | None:
    try:
        return os.lstat(where)
    except FileNotFoundError:
        return None


def save(top: str, options: dict[str, Any]) -> None:
    """The tree at `top`; standard input is the list of paths to leave out, a NUL behind each."""
    if not os.path.isdir(top):
        os.stat(top)
        raise NotADirectoryError(20, os.strerror(20), top)
    tree, archive = Tree(top, options, sys.stdin.buffer.read()), _sibling("archive")
    tree.check()
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT, bufsize=BLOCK) as tar:
        tar.copybufsize = BLOCK  # type: ignore[attr-defined, unused-ignore]
        for where, name in tree.walk():
            _add(tar, where, name, archive.Exactly)
            tar.members.clear()  # type: ignore[attr-defined, unused-ignore] # it remembers every entry otherwise
    sys.stdout.buffer.flush()


def _add(tar: tarfile.TarFile, where: str, name: str, exactly: Any) -> None:
    try:
        entry = tar.gettarinfo(where, name)
        if entry is None:
            return
        info = os.lstat(where) if name != "." else os.stat(where)
        entry.pax_headers = {"mtime": _sibling("exact").decimal(info.st_mtime_ns), **_attributes(where)}
        if not entry.isreg():
            tar.addfile(entry)
            return
        with open(where, "rb") as file:
            tar.addfile(entry, exactly(file, entry.size))
    except FileNotFoundError:
        return


def _attributes(where: str) -> dict[str, str]:
    """The attributes that are the sandbox's own, as PAX has them."""
    found = {}
    for word in os.listxattr(where, follow_symlinks=False):
        if word.startswith("user."):
            value = os.getxattr(where, word, follow_symlinks=False)
            found[_XATTR + word] = value.decode("utf-8", "surrogateescape")
    return found


class Whole:
    """Standard input without the word that ends it; `complete` once that word was the last."""

    def __init__(self, source: BinaryIO) -> None:
        self._source, self._held, self._ended = source, b"", False

    def read(self, count: int) -> bytes:
        while not self._ended and len(self._held) < count + len(END):
            piece = self._source.read(BLOCK)
            self._ended = not piece
            self._held += piece
        most = max(0, min(count, len(self._held) - len(END)))
        data, self._held = self._held[:most], self._held[most:]
        return data

    @property
    def complete(self) -> bool:
        while self.read(BLOCK):
            pass  # what follows the end of an archive is padding
        return self._held == END


def restore(top: str) -> None:
    """Makes `top` what the archive on standard input holds, and nothing else; asked to end, it leaves no trace."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.makedirs(top, exist_ok=True)
    for left in os.listdir(top):
        if left.startswith(STAGE):
            shutil.rmtree(os.path.join(top, left))
    stage = os.path.join(top, STAGE + os.urandom(8).hex())
    os.mkdir(stage, 0o700)
    try:
        _unpack(stage)
        _swap(top, stage)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _unpack(stage: str) -> None:
    whole = Whole(sys.stdin.buffer)
    _sibling("exact").restore(whole, stage)
    if not whole.complete:
        raise Refused("OPERATION_INTERRUPTED", "the archive was cut off on its way in")


def _swap(top: str, stage: str) -> None:
    """Out with what is there, in with what was unpacked; `top` may be a mount, so it is not renamed itself."""
    for name in os.listdir(top):
        where = os.path.join(top, name)
        if where == stage:
            continue
        if os.path.isdir(where) and not os.path.islink(where):
            shutil.rmtree(where)
        else:
            os.unlink(where)
    info = os.stat(stage)
    for name in os.listdir(stage):
        os.rename(os.path.join(stage, name), os.path.join(top, name))
    os.rmdir(stage)
    os.chown(top, info.st_uid, info.st_gid)
    os.chmod(top, info.st_mode & 0o7777)
    os.utime(top, ns=(info.st_mtime_ns, info.st_mtime_ns))


def main(words: list[str]) -> int:
    """Does what `words` say."""
    import json

    verb, top, options = words[0], words[1], json.loads(words[2])
    try:
        if verb == "save":
            save(top, options)
        else:
            restore(top)
    except BrokenPipeError:
        return 1
    except Refused as refused:
        sys.stderr.write(json.dumps({"code": refused.code, "message": str(refused)}))
        return 1
    except (OSError, tarfile.TarError, EOFError, ValueError) as problem:
        sys.stderr.write(json.dumps(_sibling("archive").complaint(problem, os.fsencode(top))))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
