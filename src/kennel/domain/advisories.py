"""Owns which published advisories of OCI runtimes concern an installed version, and what that means for Kennel.

Read by `kennel doctor` and docs. Invariants: pure; a version that cannot be read is treated as affected and said to be
unknown; nothing here makes a runtime usable or unusable, it informs. The table was last compared with the projects'
release notes and Debian 12's changelogs in November 2026.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kennel.domain.advisory_table import KNOWN, Known

Mitigated = Literal["yes", "partly", "no"]

_FINAL = 1 << 30
"""Where a final release sorts among its own release candidates."""

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Advisory:
    """One advisory that concerns an installed runtime.

    `mitigated` says whether Kennel's own set-up keeps a sandbox from using the flaw, `because` why; `certain` is False
    when the installed version could not be read. `remedy` is one sentence for an administrator.
    """

    id: str
    runtime: str
    summary: str
    fixed_in: tuple[str, ...]
    mitigated: Mitigated
    because: str
    remedy: str
    certain: bool = True

    @property
    def fixed(self) -> bool:
        """Whether nothing has to be done here: Kennel's set-up keeps every sandbox from using the flaw."""
        return self.mitigated == "yes"

    @property
    def found(self) -> str:
        """One line for `kennel doctor`."""
        known = "" if self.certain else "the installed version is unknown; "
        reach = {"yes": "cannot be used here", "partly": "can partly be used here", "no": "can be used here"}
        return f"{known}{self.summary}: {reach[self.mitigated]}, because {self.because}"


def advisories(runtime: str, version_text: str, debian_revision: str | None = None) -> list[Advisory]:
    """The advisories that concern `runtime` (`runc`, `crun`, `runsc`), as `<runtime> --version` prints its version.

    `debian_revision` is the package's version where it came from Debian; without it, the one that Debian's builds print
    is used. An unknown runtime has no advisories.
    """
    upstream = parse_version(runtime, version_text)
    debian = debian_revision or _printed_revision(version_text)
    return [
        Advisory(
            id=known.id,
            runtime=runtime,
            summary=known.summary,
            fixed_in=known.fixed_in,
            mitigated=known.mitigated,
            because=known.because,
            remedy=_remedy(runtime, known),
            certain=upstream is not None,
        )
        for known in KNOWN
        if known.runtime == runtime and _concerns(known, upstream, debian)
    ]


of = advisories
"""`advisories.of("runc", …)` reads better where the module is imported."""


def parse_version(runtime: str, text: str) -> Version | None:
    """The upstream version in a `--version` text as comparable numbers; None when there is none to be found.

    runc and crun: major, minor, patch, release candidate. runsc: the date of its release.
    """
    if runtime == "runsc":
        dated = re.search(r"(?<!\d)(20\d{6})(?:\.(\d+))?", text)
        return (int(dated[1]), int(dated[2] or 0)) if dated else None
    match = re.search(r"(?<![\w.])v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-~]?rc\.?(\d+))?", text)
    if match is None:
        return None
    major, minor, patch, candidate = match.groups()
    return int(major), int(minor), int(patch or 0), int(candidate) if candidate else _FINAL


def _concerns(known: Known, installed: Version | None, debian: str | None) -> bool:
    if installed is None:
        return True
    if debian is not None and any(_debian_has(fix, debian) for fix in known.debian_fixed):
        return False
    since = parse_version(known.runtime, known.since) if known.since else None
    if since is not None and installed < since:
        return False
    fixes = [fix for word in known.fixed_in if (fix := parse_version(known.runtime, word)) is not None]
    if not fixes:
        return True
    if known.runtime == "runsc":
        return installed < min(fixes)
    same_series = [fix for fix in fixes if fix[:2] == installed[:2]]
    return installed < min(same_series) if same_series else installed < min(fixes)


def _printed_revision(text: str) -> str | None:
    """The Debian version that Debian's builds of runc and crun print as their commit."""
    match = re.search(r"^commit:\s*(\S+-\S*\d\S*)$", text, re.MULTILINE)
    return match[1] if match else None


def _debian_has(fix: str, installed: str) -> bool:
    """Whether `installed` is a later revision of the very upstream version that `fix` patches."""
    fixed_upstream, _, fixed_revision = fix.rpartition("-")
    upstream, _, revision = installed.rpartition("-")
    return upstream == fixed_upstream and _numbers(revision) >= _numbers(fixed_revision)


def _numbers(revision: str) -> list[int]:
    """The numbers of a Debian revision in order: `1+deb12u2` is [1, 12, 2], and `1` sorts before it."""
    return [int(word) for word in re.findall(r"\d+", revision)]


def _remedy(runtime: str, known: Known) -> str:
    if not known.fixed_in:
        return f"no fixed version of {runtime} is known"
    wanted = " or ".join(known.fixed_in)
    if known.mitigated == "yes":
        return f"nothing has to be done; {runtime} {wanted} has the fix"
    return f"install {runtime} {wanted} (or a later one of its series)"
