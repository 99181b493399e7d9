"""Owns the images directory: which images are here, under which names and digests; called by node and the command line.

Layout: `<sha256>.erofs` with `<sha256>.json` beside it, and `host-<12 digits>/` for each skeleton of the host image.
Invariants: an image's file never changes after it is listed; a name means the newest image of that name; an image
in use is not removed. Names and digests come from callers and never reach a path before they have been checked.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from kennel.adapters.images.host import MARK, HostImage, LowerLayers
from kennel.wire.errors import error

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_DESCRIPTION_LIMIT = 64 * 1024


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """One image. `size` in bytes of the file (0 for `host`, which has none); `created` in seconds since 1970.

    `architecture` is `uname -m`'s word, "" when unknown.
    """

    name: str
    digest: str
    kind: Literal["host", "erofs"]
    size: int = 0
    created: float = 0.0
    architecture: str = ""
    description: str = ""

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)


class ImageStore:
    """The images of one node, in `images_dir`; every method looks at the directory afresh."""

    def __init__(self, images_dir: Path, source: Path = Path("/")) -> None:
        self._dir = images_dir
        self._host = HostImage(images_dir, source)

    def host_image(self) -> HostImage:
        """The `host` image of this machine; not prepared by looking."""
        return self._host

    def list(self) -> list[ImageInfo]:
        """The host image, then the others by name, the newest of a name first."""
        return [self._host_info(), *sorted(self._files(), key=lambda image: (image.name, -image.created))]

    def resolve(self, name_or_digest: str) -> str:
        """The digest a name or digest means here; raises IMAGE_NOT_FOUND."""
        return self._find(name_or_digest).digest

    def info(self, digest: str) -> ImageInfo:
        """What is known of a digest (or name); raises IMAGE_NOT_FOUND.

        An earlier digest of the host image still answers, as `host` with that digest, while its skeleton is here.
        """
        return self._find(digest)

    def lower(self, digest: str) -> LowerLayers:
        """The layers to mount: for `host` its directories, built if need be, else `root` is the EROFS file itself.

        A digest of an earlier host means the present one: the machine's /usr is what it is now. IMAGE_NOT_FOUND.
        """
        found = self._find(digest)
        if found.kind == "host":
            return self._host.prepare()
        return LowerLayers(found.digest, self.path(found.digest))

    def path(self, digest: str) -> Path:
        """Where the EROFS file of `digest` is, there or not."""
        return self._dir / f"{_hex(digest)}.erofs"

    def remove(self, name_or_digest: str, in_use: Collection[str] = ()) -> None:
        """Deletes an image's files; raises RESOURCE_BUSY while its digest is in `in_use`, IMAGE_NOT_FOUND for none."""
        found = self._find(name_or_digest)
        if found.digest in in_use:
            raise error(
                "RESOURCE_BUSY",
                f"image {found.name} ({found.digest[:19]}) is used by a sandbox",
                hint="destroy the sandboxes made on it first",
            )
        if found.digest == self._host.digest():
            raise error("VALIDATION_FAILED", "the present host image is part of the machine and cannot be removed")
        if found.kind == "host":
            shutil.rmtree(self._host.directory(found.digest))
            return
        self.path(found.digest).with_suffix(".json").unlink(missing_ok=True)
        self.path(found.digest).unlink(missing_ok=True)

    def _find(self, name_or_digest: str) -> ImageInfo:
        if _DIGEST.fullmatch(name_or_digest):
            wanted = f"sha256:{_hex(name_or_digest)}"
            found = [image for image in (*self.list(), *self._earlier_hosts()) if image.digest == wanted]
        else:
            found = [image for image in self.list() if image.name == name_or_digest]
        if not found:
            raise error("IMAGE_NOT_FOUND", f"no image {name_or_digest[:80]!r} on this machine")
        return found[0]

    def _host_info(self) -> ImageInfo:
        return ImageInfo(
            name=self._host.name,
            digest=self._host.digest(),
            kind="host",
            description="this machine's own /usr under a generated root",
        )

    def _earlier_hosts(self) -> Sequence[ImageInfo]:
        marks = (_read(path) for path in sorted(self._dir.glob(f"host-*/{MARK}")))
        return [ImageInfo("host", mark["digest"], "host") for mark in marks if isinstance(mark.get("digest"), str)]

    def _files(self) -> Sequence[ImageInfo]:
        """Images whose file and description are both here; a half-written one is not an image."""
        found = []
        for path in self._dir.glob("*.json"):
            image = path.with_suffix(".erofs")
            info = _described(path.stem, _read(path))
            if info is not None and image.is_file() and image.stat().st_size == info.size:
                found.append(info)
        return found


def _hex(digest: str) -> str:
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise error("IMAGE_NOT_FOUND", f"{digest[:80]!r} is not a digest")
    return match.group(1)


def _read(path: Path) -> dict[str, Any]:
    """A small JSON object from disk; an empty one when it is anything else."""
    try:
        if path.stat().st_size > _DESCRIPTION_LIMIT:
            return {}
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _described(stem: str, raw: dict[str, Any]) -> ImageInfo | None:
    """The description of a file, or None when it does not describe this file."""
    name, size, created = raw.get("name"), raw.get("size"), raw.get("created")
    if raw.get("digest") != f"sha256:{stem}" or not isinstance(name, str) or not NAME.fullmatch(name):
        return None
    if name == "host" or not isinstance(size, int) or not isinstance(created, int | float):
        return None
    return ImageInfo(
        name=name,
        digest=f"sha256:{stem}",
        kind="erofs",
        size=size,
        created=float(created),
        architecture=str(raw.get("architecture", "")),
        description=str(raw.get("description", "")),
    )
