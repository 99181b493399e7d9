"""Owns the grammar of secret placeholders: `getSecret("/secrets/x")`, with a field, or of a platform key.

Called by substitution and by whoever plants placeholders. Invariant: text that begins like a placeholder and is none
is an error, never plain text, so a mistyped reference does not travel; reading is linear in the text.

    getSecret("/secrets/x")                      the whole material, which must be a string
    getSecret("/secrets/x", { field: "a.b" })    a string inside JSON material
    getSecret({ platform: "openai.apiKey" })     a key of the installation, in headers only
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kennel.domain.denial import Refused

MAX_REFERENCES = 100
_WORD = "getSecret"
_START = re.compile(r"getSecret\s{0,16}\(")
_S = r"\s{0,64}"
_WHOLE = re.compile(
    rf"getSecret{_S}\({_S}(?:"
    rf'"(?P<path>[^"\\\x00-\x1f]{{1,512}})"{_S}(?:,{_S}\{{{_S}field{_S}:{_S}"(?P<field>[^"\\\x00-\x1f]{{1,256}})"{_S},?{_S}\}}{_S})?'
    rf'|\{{{_S}platform{_S}:{_S}"(?P<platform>[^"\\\x00-\x1f]{{1,256}})"{_S},?{_S}\}}{_S}'
    r")\)"
)
# The same word with its bracket or quote escaped the way JSON, URLs or HTML escape: on the way to a place where
# nothing is decoded it would be forwarded as it stands.
_DISGUISED = re.compile(
    r"getSecret(?:\s|%20|\+){0,16}(?:%28|\\u0028|&#40;|&#x28;|&lpar;)"
    r"|getSecret\s{0,16}\(\s{0,16}(?:%22|\\\"|\\u0022|&quot;|&#34;|&#x22;)"
    r"|(?:%67|\\u0067)etSecret",
    re.IGNORECASE,
)
_BAD_PATH = re.compile(r"[\x00-\x20\x7f?#%\\]")


@dataclass(frozen=True, slots=True)
class Reference:
    """What a placeholder names: a secret's path with an optional dotted field, or a platform key."""

    path: str | None
    field: str | None = None
    platform: str | None = None

    @property
    def subject(self) -> str:
        """The secret's name as policy, audit and pins call it."""
        return self.path if self.path is not None else f"platform:{self.platform}"


@dataclass(frozen=True, slots=True)
class Span:
    """A placeholder's place in a text: `text[start:end]`."""

    start: int
    end: int
    reference: Reference


def check_secret_path(path: str) -> str | None:
    """Why a path cannot name a secret, or None."""
    if not path.startswith("/secrets/"):
        return "it must start with /secrets/"
    if _BAD_PATH.search(path) or not path.isprintable():
        return "it holds a character that is not allowed"
    if any(segment in ("", ".", "..") for segment in path[1:].split("/")):
        return "it holds an empty or dot segment"
    return None


def find(text: str) -> list[Span]:
    """Every placeholder in a text; Refused when something only begins like one."""
    if _WORD not in text:
        return []
    spans: list[Span] = []
    position = 0
    while (start := _START.search(text, position)) is not None:
        whole = _WHOLE.match(text, start.start())
        if whole is None:
            raise Refused("secret_reference_malformed", "a reference to a secret cannot be read")
        spans.append(Span(whole.start(), whole.end(), _reference(whole)))
        position = whole.end()
        if len(spans) > MAX_REFERENCES:
            raise Refused("secret_reference_too_many", f"more than {MAX_REFERENCES} references in one place")
    return spans


def exact(text: str) -> Reference | None:
    """The reference when the whole text is one placeholder, else None."""
    whole = _WHOLE.fullmatch(text)
    return _reference(whole) if whole is not None else None


def disguised(text: str) -> bool:
    """Whether a text holds a placeholder escaped so that it would not be replaced where it stands."""
    return "ecret" in text and _DISGUISED.search(text) is not None


def mentions(text: str) -> bool:
    """Whether a text holds anything that begins like a placeholder, escaped or not."""
    return "ecret" in text and (_START.search(text) is not None or disguised(text))


def _reference(whole: re.Match[str]) -> Reference:
    platform = whole.group("platform")
    if platform is not None:
        return Reference(None, platform=platform)
    path = whole.group("path")
    why = check_secret_path(path)
    if why is not None:
        raise Refused("secret_reference_invalid_path", f"the path of a secret cannot be used: {why}")
    return Reference(path, whole.group("field"))


def write(path: str, field: str | None = None) -> str:
    """The placeholder of a secret, as it is planted in an environment."""
    return f'getSecret("{path}")' if field is None else f'getSecret("{path}", {{ field: "{field}" }})'
