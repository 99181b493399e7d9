"""Owns turning a finished tree into one image file in the images directory: EROFS, digest, description, rename.

Called by build.py. Invariants: equal trees make equal bytes (one timestamp for every file, one UUID); the file appears
under its digest only when it is complete, synced and readable; the description comes last, and makes it an image.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from kennel.adapters.images.store import ImageInfo
from kennel.wire.errors import error

TIMESTAMP = 1704067200
"""2024-01-01: the modification time of every file in an image, in seconds since 1970."""
_UUID = "6b656e6e-656c-4000-8000-000000000001"
_BLOCK = 1024 * 1024


def pack(tree: Path, aside: Path, images_dir: Path, info: ImageInfo) -> ImageInfo:
    """Makes `<digest>.erofs` and `<digest>.json` from `tree`, working in `aside` on the same file system.

    `info` says name, architecture and description; the answer has digest, size and time too. An image of the same bytes
    that is already here is kept and becomes the newest of its name.
    """
    made = aside / "image.erofs"
    _make(tree, made)
    digest = _digest(made)
    done = replace(info, digest=f"sha256:{digest}", kind="erofs", size=made.stat().st_size, created=time.time())
    final = images_dir / f"{digest}.erofs"
    if not final.exists() or final.stat().st_size != done.size:
        made.chmod(0o444)
        _sync(made)
        os.rename(made, final)
    described = aside / "image.json"
    described.write_text(json.dumps(done.to_wire()))
    _sync(described)
    os.rename(described, final.with_suffix(".json"))
    _sync(images_dir)
    return done


def _make(tree: Path, target: Path) -> None:
    words = ["mkfs.erofs", "--quiet", "-zlz4hc", "-C65536", f"-T{TIMESTAMP}", f"-U{_UUID}", str(target), str(tree)]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise error("SANDBOX_BUILD_FAILED", f"mkfs.erofs: {' '.join(last) or done.returncode}")


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
