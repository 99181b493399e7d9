"""Owns what a sandbox may be called and where it lives: `/sandboxes/<name>`, one flat segment.

Called by the API before anything else sees a name, by control when it makes one. Invariant: a public name never
holds a dot, so a name that a room made for a later generation can never be claimed by a create.
"""

from __future__ import annotations

import re

from kennel.wire.errors import KennelError, error

PREFIX = "/sandboxes/"
MAX_NAME = 63

NAME = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
"""What a create may ask for: 1–63 of a–z, 0–9 and dash, no dash at the ends; unanchored."""

KNOWN_NAME = NAME + r"(?:\.[a-z0-9]{1,52}){0,2}"
"""What can exist: a public name, or one that a room made with up to two dotted parts (digest, generation)."""

_NAME = re.compile(NAME)
_KNOWN = re.compile(KNOWN_NAME)


def _wrong(code: str, message: str) -> KennelError:
    return error(code, message, details={"path": [message]})


def path_of(name: str) -> str:
    """The path of a name that was already checked."""
    return PREFIX + name


def name_of(path: str) -> str:
    """The name in any path that can exist, room-made ones included; raises INVALID_PATH or NAME_TOO_LONG."""
    return _parse(path, _KNOWN)


def claimable_name(path: str) -> str:
    """The name in a path that a create may ask for; raises INVALID_PATH or NAME_TOO_LONG, never repeating the input."""
    return _parse(path, _NAME)


def _parse(path: str, rule: re.Pattern[str]) -> str:
    if not path.startswith(PREFIX):
        raise _wrong("INVALID_PATH", f"a sandbox lives at {PREFIX}NAME")
    name = path[len(PREFIX) :]
    if rule.fullmatch(name):
        return name
    if len(name) > MAX_NAME:
        raise _wrong("NAME_TOO_LONG", f"a sandbox's name has at most {MAX_NAME} characters")
    raise _wrong("INVALID_PATH", "a sandbox's name is one segment of a-z, 0-9 and '-', without '-' at its ends")
