"""Owns mounting a stack of layers under a sandbox's upper, and the record that ties an upper to its stack.

Called by rootfs and unit. Invariant: an upper is only ever mounted on the stack it was first mounted on; the record is
on the same disk as the upper, written whole and synced before the first mount.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kennel.domain.layer import digest
from kennel.node import folder, idmap, linux
from kennel.node.layers import Layers
from kennel.wire.errors import error

MAX_LAYERS = 64
_RECORD = "stack.json"
_KEPT_XATTRS = ("system.posix_acl_access", "system.posix_acl_default")


@dataclass(frozen=True, slots=True)
class Image:
    """A read-only folder under a stack: the root or `/usr` of a sandbox's image, and its digest."""

    folder: Path
    digest: str


def recorded(home: Path) -> list[str] | None:
    """The stack that the upper under `home` (a folder of a mounted disk) lies on; None before its first mount."""
    words = _words(home)
    return None if words is None else words[0]


def recorded_image(home: Path) -> str | None:
    """The digest of the image that the upper under `home` lies on; None before its first mount, and on no image."""
    words = _words(home)
    return None if words is None else words[1]


def _words(home: Path) -> tuple[list[str], str | None] | None:
    try:
        with open(home / _RECORD, "rb", opener=_no_follow) as stream:
            words = json.loads(stream.read(64 * 1024))
        return [digest(name) for name in words["layers"]], words.get("image")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as failure:
        raise error("FILESYSTEM_ERROR", f"the record beside an upper cannot be read: {failure}") from failure


def mount_stack(
    layers: Layers,
    place: Path,
    name: str,
    target: Path,
    digests: Sequence[str],
    id_base: int,
    *,
    fresh: bool = False,
    image: Image | None = None,
) -> list[str]:
    """Mounts the overlay `name` of the sandbox folder `place` at `target`; the stack it really lies on.

    The disk is mounted at `place/disk`, with `disk/<name>/{upper,work}`. An upper that has a record is mounted on that
    stack whatever `digests` says, unless `fresh` asks that they be the same. Refuses with STACK_MISMATCH (also for
    another image than the record's), LAYER_MISSING, LAYER_CORRUPT.
    """
    home = place / "disk" / name
    known = _words(home)
    below = image.digest if image else None
    if known is not None and (known[1] != below or (fresh and known[0] != list(digests))):
        raise error("STACK_MISMATCH", "this upper lies on another stack")
    stack = known[0] if known is not None else [digest(each) for each in digests]
    if len(stack) > MAX_LAYERS:
        raise error("PACK_TOO_LARGE", f"a stack has at most {MAX_LAYERS} layers")
    if folder.held(target):
        return stack
    with ExitStack() as held:
        folders = [layers.mounted(layer) for layer in stack] + ([image.folder] if image else [])
        lowers = _lower_folders(held, place, name, folders, id_base)
        if known is None:
            if stack:
                if any(os.scandir(home / "upper")):
                    raise error("STACK_MISMATCH", "this upper was in use before and has no record of its stack")
                _take_root(layers.mounted(stack[0]), home / "upper", id_base)
            _record(home, stack, below)
        _overlay(place, name, lowers, target)
    return stack


def _lower_folders(held: ExitStack, place: Path, name: str, folders: list[Path], id_base: int) -> list[str]:
    """Id-mapped views of the folders, at short paths below `place` until the overlay holds them."""
    if not folders:
        (place / "empty").mkdir(exist_ok=True)
        return ["empty"]
    lowers = []
    with idmap.mapping(id_base) as userns:
        for number, source in enumerate(folders):
            shown = place / f"lower-{name}" / str(number)
            shown.mkdir(parents=True, exist_ok=True)
            linux.clone_mount_idmapped(str(source), str(shown), userns, read_only=True)
            # The overlay holds its own clone of the layer, so the host's mount table need not.
            held.callback(linux.umount, str(shown), linux.MNT_DETACH)
            lowers.append(f"lower-{name}/{number}")
    return lowers


def _overlay(place: Path, name: str, lowers: list[str], target: Path) -> None:
    target.mkdir(exist_ok=True)
    descriptor = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # By descriptor, because the sandbox reads these options in its mount table and host paths are not its business.
        here = f"/proc/self/fd/{descriptor}"
        below = ":".join(f"{here}/{lower}" for lower in lowers)
        home = f"{here}/disk/{name}"
        # redirect_dir: without it renaming a directory of a lower layer is EXDEV, and npm and cargo break.
        options = f"lowerdir={below},upperdir={home}/upper,workdir={home}/work,redirect_dir=on,index=off,metacopy=off"
        linux.mount("kennel", str(target), "overlay", linux.MS_NODEV, options)
    finally:
        os.close(descriptor)


def _take_root(layer: Path, upper: Path, id_base: int) -> None:
    """Gives a new upper's root the owner, mode, time and attributes that the stack's root has."""
    info = os.stat(layer)
    os.chown(upper, id_base + info.st_uid, id_base + info.st_gid)
    os.chmod(upper, info.st_mode & 0o7777)
    for name in os.listxattr(layer):
        if name.startswith("user."):
            os.setxattr(upper, name, os.getxattr(layer, name))
    os.utime(upper, ns=(info.st_mtime_ns, info.st_mtime_ns))


def _record(home: Path, stack: list[str], image: str | None) -> None:
    fresh = home / f".{_RECORD}.new"
    fresh.unlink(missing_ok=True)
    with open(fresh, "xb") as stream:
        stream.write(json.dumps({"layers": stack, "image": image}).encode())
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(fresh, home / _RECORD)
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
