"""Owns building an image as a process of its own: `python -m kennel.adapters.images.build stock --images-dir DIR`.

Started by `kennel image build` as root; several minutes, niced. Invariants: one build at a time per images directory;
nothing appears in it before it is whole; whatever ends this process (failure, signal, SIGKILL) leaves no mount and no
process, and the next build removes the folder it may have left.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from kennel.adapters.images import apt_sources, stock
from kennel.adapters.images.pack import pack
from kennel.adapters.images.store import ImageInfo, ImageStore
from kennel.wire.errors import KennelError, error

NEEDED = ("mmdebstrap", "mkfs.erofs", "npm", "setpriv", "unshare", "chroot")
SPACE = 3 * 1000 * 1000 * 1000
"""Bytes free in the images directory: the tree (about 1.2 GB), the archives it comes from, the image."""
_ASIDE = ".build-"
_NICE = 10
_ATTEMPTS = 50


def build_stock(images_dir: Path) -> ImageInfo:
    """Builds the stock image; progress on standard output. Raises KennelError, nothing else that is foreseen."""
    _check(images_dir)
    machine = apt_sources.of_machine()
    architecture = stock.architecture()
    with _alone(images_dir), _folder(images_dir) as aside:
        work = aside / "work"
        work.mkdir()
        started = time.monotonic()

        def say(text: str) -> None:
            print(f"{time.monotonic() - started:5.0f} s  {text}", flush=True)

        say(f"stock image: Debian {machine.codename}, {architecture}")
        stock.fill(stock.Recipe(aside / "tree", work, machine, say))
        say("one file")
        description = f"Debian {machine.codename}: Python 3, Node 20, Bun, git, gh, curl, jq, sudo"
        info = ImageInfo("stock", "", "erofs", architecture=os.uname().machine, description=description)
        done = pack(aside / "tree", aside, images_dir, info)
        say(f"{done.digest}  {done.size / 1e6:.0f} MB")
        return done


def _check(images_dir: Path) -> None:
    """Everything that can be known to fail, before any work."""
    if os.geteuid() != 0:
        raise error("PERMISSION_DENIED", "building an image needs root", hint="run it as root or with sudo")
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise error("SANDBOX_BUILD_FAILED", f"not installed: {', '.join(missing)}", hint=stock.REMEDY)
    images_dir.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(images_dir).free
    if free < SPACE:
        raise error("NO_SPACE", f"{images_dir} has {free / 1e9:.1f} GB free; a build needs {SPACE / 1e9:.0f} GB")


@contextmanager
def _alone(images_dir: Path) -> Iterator[None]:
    """Holds the directory's build lock; raises RESOURCE_BUSY while another build has it."""
    with (images_dir / ".build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise error("RESOURCE_BUSY", "another image build is under way here", retry_after_ms=60_000) from None
        yield


@contextmanager
def _folder(images_dir: Path) -> Iterator[Path]:
    """A folder beside the images, gone afterwards; those of builds that were killed go first (the lock is held)."""
    for left in images_dir.glob(f"{_ASIDE}*"):
        _remove(left)
    aside = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=images_dir))
    try:
        yield aside
    finally:
        _remove(aside)


def _remove(folder: Path) -> None:
    """Deletes a build's folder; programs that were just killed may still be writing into it for a moment."""
    for _ in range(_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
    shutil.rmtree(folder)


def _stop(number: int, frame: FrameType | None) -> None:
    """Turns a signal into an exception, so that everything is cleaned on the way out."""
    raise SystemExit(128 + number)


def main(argv: Sequence[str] | None = None) -> int:
    """0 when the image is there, 1 with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="kennel image build")
    parser.add_argument("name", choices=["stock"])
    parser.add_argument("--images-dir", type=Path, required=True)
    parser.add_argument("--if-missing", action="store_true", help="do nothing when an image of that name is here")
    options = parser.parse_args(argv)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _stop)
    os.nice(_NICE)
    try:
        if options.if_missing and any(image.name == options.name for image in ImageStore(options.images_dir).list()):
            print(f"{options.name} is here already")
            return 0
        build_stock(options.images_dir)
    except KennelError as failed:
        print(failed.message, file=sys.stderr)
        for line in failed.details if isinstance(failed.details, list) else []:
            print(f"  {line}", file=sys.stderr)
        if failed.hint:
            print(f"  → {failed.hint}", file=sys.stderr)
        return 1
    except OSError as failed:
        print(f"the build failed: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
