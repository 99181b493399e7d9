"""Owns loop devices: attaching a disk image, finding who holds one, by ioctl.

Called by disk. Invariant: one image is never behind two loop devices at once (two ext4 superblocks over one file
would destroy it), and a device lets go by itself when its last mount goes (LO_FLAGS_AUTOCLEAR).
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from pathlib import Path

LOOP_CTL_GET_FREE, LOOP_CONFIGURE, LOOP_CLR_FD = 0x4C82, 0x4C0A, 0x4C01
LO_FLAGS_AUTOCLEAR = 4
_INFO64 = struct.Struct("=5Q4I64s64s32s2Q")
_CONFIG = struct.Struct(f"=2I{_INFO64.size}s8Q")


def holder(image: str) -> str | None:
    """The loop device that backs `image` now, if any."""
    for entry in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if entry.read_text().rstrip("\n") == image:
                return f"/dev/{entry.parts[3]}"
        except OSError:
            continue  # the device was released between the listing and the read
    return None


def attach(image: str) -> tuple[str, int]:
    """A loop device over `image` and an open descriptor of it; keep it open until the mount holds the device."""
    while (held := holder(image)) is not None:
        # The same device is the same superblock, whoever else still has it mounted. Once open it stays; it may have
        # been released, and taken by another image, just before.
        try:
            device = os.open(held, os.O_RDWR | os.O_CLOEXEC)
        except OSError as failure:
            if failure.errno != errno.ENXIO:
                raise
            time.sleep(0.001)  # its last user has just let go, and the kernel (before 6.10) is still at it
            continue
        if holder(image) == held:
            return held, device
        os.close(device)
    backing = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    try:
        return _configure(image, backing)
    finally:
        os.close(backing)


def _configure(image: str, backing: int) -> tuple[str, int]:
    info = _INFO64.pack(0, 0, 0, 0, 0, 0, 0, 0, LO_FLAGS_AUTOCLEAR, image.encode()[-63:], b"", b"", 0, 0)
    config = _CONFIG.pack(backing, 0, info, *([0] * 8))
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(64):
            name = f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}"
            device = os.open(name, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, LOOP_CONFIGURE, config)
            except OSError:
                os.close(device)  # another process took this number first: ask for the next
                continue
            return name, device
    finally:
        os.close(control)
    raise OSError(f"no free loop device for {image}")


def wait_released(image: str, seconds: float = 1.0) -> bool:
    """Whether `image` is behind no loop device any more, waiting at most `seconds`."""
    deadline = time.monotonic() + seconds
    while holder(image) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
