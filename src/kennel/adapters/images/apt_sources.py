"""Owns reading which Debian mirrors, proxies and authorities this machine's apt uses, so that a build uses the same.

Called by stock.py. Invariants: no mirror is named here; third-party archives are left out (an image is Debian's); a
user name or password in an address is used for the build and never written into the image.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kennel.wire.errors import error

_ONE_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]*@")
_FETCHING = re.compile(
    r"Acquire::(?:http|https)::[\w:.*-]*(?:Proxy|CaInfo|CaPath|Verify-Peer)\S* \".*\";", re.IGNORECASE
)
_KEPT_FIELDS = ("URIs", "Suites", "Components", "Signed-By", "Architectures", "Trusted")


@dataclass(frozen=True, slots=True)
class AptSources:
    """Sources as one deb822 text, and the apt options (proxy, authorities) needed to reach them."""

    codename: str
    text: str
    options: tuple[str, ...] = ()

    @property
    def public_text(self) -> str:
        """The sources without any user name or password: what the image may contain."""
        return _CREDENTIALS.sub("", self.text)


def codename(release: str) -> str:
    """Debian's code name from the text of os-release; raises SANDBOX_BUILD_FAILED on another distribution."""
    fields = dict(line.split("=", 1) for line in release.splitlines() if "=" in line)
    name = fields.get("VERSION_CODENAME", "").strip('"')
    if fields.get("ID", "").strip('"') != "debian" or not name.isalpha():
        raise error(
            "SANDBOX_BUILD_FAILED",
            "the stock image is built from this machine's own Debian sources, and this is not Debian",
            hint="build it on a Debian machine and copy the .erofs and .json files over",
        )
    return name


def of_machine(root: Path = Path("/")) -> AptSources:
    """The sources of the machine at `root`; raises SANDBOX_BUILD_FAILED when it has none for its own release."""
    name = codename((root / "usr/lib/os-release").read_text())
    folder = root / "etc/apt"
    stanzas = []
    for path in (folder / "sources.list", *sorted((folder / "sources.list.d").glob("*.list"))):
        stanzas += list(_from_lines(_text(path), name))
    for path in sorted((folder / "sources.list.d").glob("*.sources")):
        stanzas += list(_from_stanzas(_text(path), name))
    if not stanzas:
        raise error(
            "SANDBOX_BUILD_FAILED",
            f"apt here has no source for Debian {name}",
            hint="add one to /etc/apt/sources.list and run 'apt-get update'",
        )
    return AptSources(name, "\n".join(_written(stanza) for stanza in stanzas), _fetching(_apt_config()))


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""


def _of_release(suites: Iterable[str], name: str) -> list[str]:
    """The suites of this release: `bookworm`, `bookworm-updates`, `bookworm-security`, `bookworm/updates`."""
    return [suite for suite in suites if re.fullmatch(rf"{name}([-/][\w-]+)?/?", suite)]


def _from_lines(text: str, name: str) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        match = _ONE_LINE.match(line.split("#", 1)[0].strip())
        if match is None or not (suites := _of_release([match["suite"]], name)):
            continue
        stanza = {"URIs": match["uri"], "Suites": suites[0], "Components": match["components"].strip()}
        for option in (match["options"] or "").split():
            key, _, value = option.partition("=")
            if key.lower() == "signed-by":
                stanza["Signed-By"] = value
        yield stanza


def _from_stanzas(text: str, name: str) -> Iterator[dict[str, str]]:
    for block in re.split(r"\n\s*\n", text):
        fields = _fields(block)
        suites = _of_release(fields.get("suites", "").split(), name)
        if not suites or "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        kept = {key: fields[key.lower()] for key in _KEPT_FIELDS if key.lower() in fields}
        yield {**kept, "Suites": " ".join(suites)}


def _fields(block: str) -> dict[str, str]:
    """Field names in lower case; a continued line (an embedded key) belongs to the field before it."""
    fields: dict[str, str] = {}
    last = ""
    for line in block.splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in (" ", "\t") and last:
            fields[last] += "\n" + line
        elif ":" in line:
            last, value = line.split(":", 1)
            last = last.strip().lower()
            fields[last] = value.strip()
    return fields


def _written(stanza: dict[str, str]) -> str:
    return "".join(f"{key}: {value}\n" for key, value in {"Types": "deb", **stanza}.items())


def _apt_config() -> str:
    done = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout


def _fetching(dump: str) -> tuple[str, ...]:
    """The options about how to fetch: proxies and certificate authorities, as `apt-config dump` writes them."""
    return tuple(line for line in dump.splitlines() if _FETCHING.fullmatch(line))
