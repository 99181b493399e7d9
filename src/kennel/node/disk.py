"""Owns a sandbox's disk: a sparse ext4 image of its instance type's size, on which every writable path lies.

Called by unit. Invariant: the image is mounted at most once, `nosuid,nodev,errors=remount-ro`; its directories are
made before anything of the sandbox ran, so nothing here ever walks what a sandbox wrote.
"""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kennel.domain import disk_room
from kennel.node import linux, loop
from kennel.steps import step
from kennel.wire.errors import KennelError, error

UPPERS = ("root", "usr", "workspace")
_MKFS = ("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard")
BROKEN = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.EROFS, errno.ESTALE})
"""What a damaged file system answers; after the first of these it is read-only."""
_MAKING = threading.Lock()
"""Two threads that make the same golden image would write into each other's file."""


def golden(folder: Path, size: int) -> Path:
    """An empty file system of `size` bytes, made once (11 ms) and copied for each sandbox (5 ms)."""
    target = folder / f"{size}.ext4"
    with _MAKING:
        if not target.exists():
            fresh = folder / f".{size}.new"
            with step("make golden image"):
                folder.mkdir(parents=True, exist_ok=True)
                with open(fresh, "wb") as stream:
                    stream.truncate(size)
                words = [*_MKFS, str(fresh)]
                subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
            with step("keep golden image"):
                os.replace(fresh, target)
    return target


def copy_sparse(source: Path, target: Path) -> None:
    """Copies only the parts of `source` that hold data; the holes stay holes."""
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(reading).st_size
        os.ftruncate(writing, size)
        position = 0
        while position < size:
            try:
                start = os.lseek(reading, position, os.SEEK_DATA)
            except OSError:
                break  # ENXIO: nothing but a hole from here on
            end = os.lseek(reading, start, os.SEEK_HOLE)
            os.lseek(writing, start, os.SEEK_SET)
            offset = start
            while offset < end:
                sent = os.sendfile(writing, reading, offset, end - offset)
                if sent == 0:
                    raise OSError(f"{source} ended early")
                offset += sent
            position = end
    finally:
        os.close(reading)
        os.close(writing)


def mount(image: Path, target: Path) -> None:
    """Mounts `image` at `target`; a second call is a no-op."""
    if os.path.ismount(target):
        return
    with step("mkdir", target.name):
        target.mkdir(exist_ok=True)
    with step("attach loop device"):
        device, descriptor = loop.attach(str(image))
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOATIME
    try:
        with step("mount", target.name):
            linux.mount(device, str(target), "ext4", flags, "errors=remount-ro")
    except OSError as failure:
        raise damaged(failure) from failure
    finally:
        os.close(descriptor)


def damaged(failure: OSError) -> KennelError:
    """What is said of a disk on which the kernel finds no file system, or a broken one."""
    return error("FILESYSTEM_ERROR", f"the sandbox's disk is damaged: {os.strerror(failure.errno or 0)}", admitted="no")


@contextmanager
def told() -> Iterator[None]:
    """Says of a failure in the block that comes from a broken file system what it is."""
    try:
        yield
    except OSError as failure:
        if failure.errno not in BROKEN:
            raise
        raise damaged(failure) from failure


def reserve(mounted: Path, held: int, size: int) -> None:
    """Keeps `held` bytes of a mounted disk from everybody, so that with the layers below it has `size`, as promised.

    The kernel holds them back until the disk is unmounted, also from root and so from the overlay (30 µs).
    """
    device, space = os.stat(mounted).st_dev, os.statvfs(mounted)
    name = os.path.basename(os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
    # What ext4 itself keeps back so that it never runs out in the middle of a change.
    own = min(space.f_blocks // 50, 4096)
    blocks = -(-disk_room.withheld(held, (space.f_blocks - own) * space.f_bsize, size) // space.f_bsize)
    with step("reserve"):
        Path(f"/sys/fs/ext4/{name}/reserved_clusters").write_text(str(own + blocks))


def lay_out(mounted: Path, id_base: int) -> None:
    """Makes the upper and work directories of a new disk, owned by the sandbox's root."""
    for name in UPPERS:
        for part in ("upper", "work"):
            folder = mounted / name / part
            if folder.is_dir():
                continue  # its owner and mode are the sandbox's own by now
            # Under another name first: one that is there is whole.
            fresh = mounted / name / f".{part}.new"
            with step("lay out", name, part):
                fresh.mkdir(parents=True, exist_ok=True)
                os.chown(fresh, id_base, id_base)
                os.chmod(fresh, 0o755)
                os.rename(fresh, folder)
