"""Owns the setting of what a sandbox's snapshots leave out: which answers are valid, and what each means.

Called by the lifecycle service before it is stored, and by whoever packs. Invariant: what is stored or used was checked
here: known fields, bounded patterns without a NUL.
"""

from __future__ import annotations

from typing import Any

from kennel.wire.errors import error

MAX_PATTERNS = 64
MAX_PATTERN = 256
_SWITCHES = ("nodeModules", "gitignore")
_FIELDS = frozenset({*_SWITCHES, "patterns"})


def checked(asked: dict[str, Any]) -> dict[str, Any]:
    """`asked` if it is a valid answer: `nodeModules`, `gitignore` (booleans) and `patterns`; VALIDATION_FAILED."""
    patterns = asked.get("patterns", [])
    good = (
        asked.keys() <= _FIELDS
        and all(isinstance(asked[word], bool) for word in _SWITCHES if word in asked)
        and isinstance(patterns, list)
        and len(patterns) <= MAX_PATTERNS
        and all(isinstance(each, str) and _fits(each) for each in patterns)
    )
    if not good:
        said = (
            f"nodeModules and gitignore are booleans, patterns at most {MAX_PATTERNS} texts of 1 to {MAX_PATTERN} "
            "characters without a NUL"
        )
        raise error("VALIDATION_FAILED", "invalid request", details={"leaveOut": [said]}, admitted="no")
    return asked


def _fits(pattern: str) -> bool:
    # A lone surrogate is legal JSON but no text that a log can keep.
    lone = any("\ud800" <= character <= "\udfff" for character in pattern)
    return 0 < len(pattern) <= MAX_PATTERN and "\0" not in pattern and not lone


def wanted(asked: dict[str, Any], persist: str | None) -> dict[str, Any]:
    """The whole answer, with defaults: a sandbox that keeps all of its disk leaves nothing out."""
    default = persist != "disk"
    return {"nodeModules": default, "gitignore": default, "patterns": [], **asked}
