"""Owns the `host` image: the machine's own /usr under a generated root, so that a sandbox needs no image to be fetched.

Called by store.py and by whoever mounts a sandbox's root. Invariants: the digest is that of the machine's package
database, its os-release and the skeleton's version; a prepared skeleton is complete (built aside, then renamed) and is
never written again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from kennel.adapters.images import skeleton
from kennel.wire.errors import error

MARK = "image.json"
_DIGEST_OF = ("var/lib/dpkg/status", "usr/lib/os-release")


@dataclass(frozen=True, slots=True)
class LowerLayers:
    """The read-only layers of the image `digest`: a root, and what is mounted at its /usr when that is apart."""

    digest: str
    root: Path
    usr: Path | None = None


class HostImage:
    """The image named `host` of the machine at `source`, kept under `images_dir`."""

    name = "host"

    def __init__(self, images_dir: Path, source: Path = Path("/")) -> None:
        self._images_dir = images_dir
        self._source = source
        self._building = threading.Lock()
        self._known: tuple[object, str] | None = None

    def digest(self) -> str:
        """`sha256:` and 64 hex digits; changes when a package of the machine does."""
        seen = self._state()
        known = self._known
        if known is None or known[0] != seen:
            known = self._known = (seen, self._compute())
        return known[1]

    def _state(self) -> object:
        """What changes whenever a file of the digest does: dpkg replaces its status by a rename."""
        found: list[tuple[int, ...] | None] = []
        for name in _DIGEST_OF:
            try:
                stat = (self._source / name).stat()
            except FileNotFoundError:
                found.append(None)
            else:
                found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
        return found

    def _compute(self) -> str:
        found = hashlib.sha256(f"kennel host skeleton {skeleton.VERSION}\n".encode())
        for name in _DIGEST_OF:
            path = self._source / name
            content = path.read_bytes() if path.is_file() else b""
            found.update(f"{name} {len(content)}\n".encode())
            found.update(content)
        return f"sha256:{found.hexdigest()}"

    def directory(self, digest: str | None = None) -> Path:
        """Where the skeleton of `digest` (default: the present one) is or would be."""
        return self._images_dir / f"host-{(digest or self.digest()).removeprefix('sha256:')[:12]}"

    def prepare(self) -> LowerLayers:
        """The layers of the image as it is now. Builds the skeleton unless it is there; root only, one to two seconds
        the first time.

        Raises IMAGE_NOT_FOUND on a machine whose /bin is not a link into /usr.
        """
        if not (self._source / "bin").is_symlink():
            raise error(
                "IMAGE_NOT_FOUND",
                "the host image needs a machine with a merged /usr, and /bin here is a directory",
                hint="install 'usrmerge', or use --image stock",
            )
        # Asked for once: a package may be installed at any moment, and then what follows is of another image.
        digest = self.digest()
        final = self.directory(digest)
        layers = LowerLayers(digest, final / "root", self._source / "usr")
        with self._building:
            if (final / MARK).is_file():
                return layers
            self._images_dir.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=".host-", dir=self._images_dir))
            try:
                (aside / "root").mkdir()
                skeleton.build(aside / "root", self._source)
                (aside / MARK).write_text(json.dumps({"name": self.name, "digest": digest, "kind": "host"}))
                aside.chmod(0o755)
                self._put(aside, final)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        return layers

    @staticmethod
    def _put(aside: Path, final: Path) -> None:
        """Renames into place; another process may have been first, which is as good."""
        try:
            os.rename(aside, final)
        except OSError:
            if not (final / MARK).is_file():
                raise
