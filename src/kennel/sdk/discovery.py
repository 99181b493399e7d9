"""Owns how a client finds its server: arguments, then KENNEL_* variables, then the installation on this machine.

Called by both halves of the SDK and by the command line. Invariant: the key that an installation keeps in its data
folder is only ever sent to that installation's own URL.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kennel.wire.errors import error

DEFAULT_URL = "http://127.0.0.1:8787"
DEFAULT_PROJECT = "default"
MAX_FILE = 4096
"""Bytes read of `url` and `admin.key`; both are one short line."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is, and the key to show it (None when none was found)."""

    url: str
    api_key: str | None
    project: str

    def __repr__(self) -> str:
        key = "None" if self.api_key is None else "'***'"
        return f"Address(url={self.url!r}, api_key={key}, project={self.project!r})"


def default_data(root: bool | None = None) -> Path:
    """The data folder of an installation that was started without `--data`: the machine's for root, else the user's."""
    if os.geteuid() == 0 if root is None else root:
        return Path("/var/lib/kennel")
    return Path.home() / ".local" / "share" / "kennel"


def discover(
    *,
    url: str | None = None,
    api_key: str | None = None,
    project: str | None = None,
    data: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Address:
    """The address to use; an argument beats its variable, a variable beats the installation's files.

    Raises VALIDATION_FAILED for a URL or key that cannot be one, FORBIDDEN when the key file may not be read.
    """
    env = os.environ if environ is None else environ
    folder = Path(data or env.get("KENNEL_DATA") or default_data())
    written = _line(folder / "url", secret=False)
    local = checked_url(written) if written else DEFAULT_URL
    asked = url or env.get("KENNEL_URL")
    target = checked_url(asked) if asked else local
    key = api_key or env.get("KENNEL_API_KEY")
    if not key and target == local:
        key = _line(folder / "admin.key", secret=True)
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise error(
            "VALIDATION_FAILED", "the key has characters that no key has", hint="is the whole key there, alone?"
        )
    return Address(target, key or None, project or env.get("KENNEL_PROJECT") or DEFAULT_PROJECT)


def checked_url(text: str) -> str:
    """The URL without its trailing slash; VALIDATION_FAILED unless it is http or https with a host."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good or not text.isprintable() or "?" in text or "#" in text or "@" in text:
        raise error("VALIDATION_FAILED", f"{text!r} is not a server's URL", hint=f"it looks like {DEFAULT_URL}")
    return text.rstrip("/")


def _line(path: Path, *, secret: bool) -> str | None:
    """The first line of a small file; None when there is no such file or it may not be looked at."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        if not secret:
            return None
        hint = "run this as the user who started Kennel, or set KENNEL_API_KEY"
        raise error("FORBIDDEN", f"the key file {path} may not be read by this user", hint=hint) from None
    return text.strip().split("\n", 1)[0].strip() or None
