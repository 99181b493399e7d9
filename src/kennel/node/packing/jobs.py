"""Owns the work of one confined process (pack, look, compare, export, verify, sweep): descriptors in, an answer out.

Called by process; standard library only. Invariant: it speaks only on the line it was given, in JSON messages of a few
fixed shapes; a path in one is Base64, since names are bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from socket import socket
from typing import Any

from kennel.node.packing import compare, export, look
from kennel.node.packing.build import Build, Rules, Tally
from kennel.node.packing.exclusion import Exclusion
from kennel.node.packing.failure import of
from kennel.node.packing.image import BLOCK, MAGIC, SUPER, SUPER_AT, Image
from kennel.node.packing.prefill import prefill
from kennel.node.packing.sweep import Sweep

_PROGRESS_EVERY = 0.5
_PIECE = 1 << 20

Words = dict[str, Any]


def run(line: socket, words: Words, descriptors: Sequence[int]) -> None:
    """Does the job and says how it ended; never raises."""
    try:
        answer = _JOBS[words["job"]](line, words, descriptors)
        _say(line, done=answer)
    except Exception as failure:  # noqa: BLE001 (node must hear of it, whatever it is)
        refused = of(failure)
        path = None if refused.path is None else base64.b64encode(refused.path[:4096]).decode()
        _say(line, failed=refused.code, message=refused.message, path=path)


def _pack(line: socket, words: Words, descriptors: Sequence[int]) -> Words:
    """Descriptors: the image (empty), the list of excluded paths (NUL-ended each), the layers, the topmost first."""
    out, listed, *trees = descriptors
    roots = _roots(trees)
    paths = [path for path in _read_all(listed).split(b"\0") if path]
    exclusion = Exclusion(paths, [os.fsencode(name) for name in words["names"]])
    rules = Rules(words["bottom"], exclusion, words["max_bytes"], words["max_entries"])
    image = Image(out)
    build = Build(roots, words["merged"], image, rules, _ticker(line))
    if words["live"]:
        if not words["small"]:
            prefill(build, image, roots[0], exclusion, rules.max_bytes)
        _say(line, ready=True)
        if line.recv(16) != b"go":
            os._exit(1)
    root = build.run()
    if words["live"]:
        _say(line, scanned=True)
    size = image.finish(root, words["salt"])
    os.fsync(out)
    return {"digest": _digest(out), "size": size, **asdict(build.tally)}


def _look(_: socket, words: Words, descriptors: Sequence[int]) -> Words:
    """Descriptors: the uppers."""
    return asdict(look.run(_roots(descriptors), words["max_entries"], words["max_bytes"], words["known"]))


def _compare(line: socket, words: Words, descriptors: Sequence[int]) -> Words:
    """Descriptors: where the list goes, then the layers of the old tree, then of the new one."""
    out, *trees = descriptors
    roots = _roots(trees)
    old, new = roots[: words["old"]], roots[words["old"] :]
    return compare.run(out, old, new, words["same"], words["max_entries"])


def _export(line: socket, words: Words, descriptors: Sequence[int]) -> Words:
    """Descriptors: where the tar goes, then the layers."""
    out, *trees = descriptors
    tick = _ticker(line)
    return export.run(out, _roots(trees), words["max_entries"], tick)


def _verify(line: socket, words: Words, descriptors: Sequence[int]) -> Words:
    """Descriptors: an image, perhaps a file to copy it to while it is read. Its digest, whether it looks like one."""
    image, *copy = descriptors
    digest = _digest(image, copy[0] if copy else None)
    if copy:
        (image,) = copy
        os.fsync(image)
    size = os.fstat(image).st_size
    head = os.pread(image, SUPER.size, SUPER_AT)
    fields = SUPER.unpack(head) if len(head) == SUPER.size else (0,) * 20
    sane = fields[0] == MAGIC and fields[3] == 12 and fields[9] * BLOCK == size
    return {"digest": digest, "size": size, "sane": sane}


def _sweep(line: socket, words: Words, descriptors: Sequence[int]) -> Words:
    """Descriptors: a writable mount whose contents go. How many names went."""
    (root,) = _roots(descriptors)
    work = Sweep(root, _ticker(line))
    work.run()
    return {"entries": work.tally.entries}


_JOBS: dict[str, Callable[[socket, Words, Sequence[int]], Words]] = {
    "pack": _pack,
    "look": _look,
    "compare": _compare,
    "export": _export,
    "verify": _verify,
    "sweep": _sweep,
}


def _roots(trees: Sequence[int]) -> list[int]:
    """The root directories of detached mounts, open for reading (what makes a mount gives a mere handle)."""
    return [os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=tree) for tree in trees]


def _ticker(line: socket) -> Callable[[Tally], None]:
    last = time.monotonic()

    def tick(tally: Tally) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PROGRESS_EVERY:
            last = now
            _say(line, progress=[tally.entries, tally.bytes])

    return tick


def _say(line: socket, **words: Any) -> None:
    line.send(json.dumps(words).encode())


def _digest(descriptor: int, copy: int | None = None) -> str:
    found, at = hashlib.sha256(), 0
    while piece := os.pread(descriptor, _PIECE, at):
        found.update(piece)
        at += len(piece)
        view = memoryview(piece) if copy is not None else None
        while view and copy is not None:
            view = view[os.write(copy, view) :]
    return found.hexdigest()


def _read_all(descriptor: int) -> bytes:
    pieces, at = [], 0
    while piece := os.pread(descriptor, _PIECE, at):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)
