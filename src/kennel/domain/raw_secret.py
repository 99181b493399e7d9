"""Owns the look of a secret's own value, where the reference to one belongs.

Called by control/sandboxes.py for what is put into an environment. Invariant: a warning names the variable and never
holds any part of the value; it is advice, so nothing is refused for it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping

LONG, BITS = 16, 3.0
"""A value under a telling name is taken for one from so many characters, and bits of entropy for each of them, on."""
MAX_LOOKED_AT = 16 * 1024

_REFERENCE = re.compile(r"getSecret\s{0,16}\([^()]{0,1024}\)")
_TELLING = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|PWD|CREDENTIALS?)(?:_|$)", re.IGNORECASE
)
_PUBLIC = re.compile(r"(?:^|_)(?:PUBLIC|PUB|PATH|FILE|DIR|ID|URL|NAME)(?:_|$)", re.IGNORECASE)
_KINDS = tuple(
    (what, re.compile(pattern))
    for what, pattern in (
        ("a private key", r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"),
        ("a GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})"),
        ("a GitLab token", r"\bgl(?:pat|dt|rt)-[A-Za-z0-9_-]{20,}"),
        ("an Anthropic key", r"\bsk-ant-[A-Za-z0-9_-]{20,}"),
        ("an OpenAI key", r"\bsk-(?:proj-|svcacct-)?[A-Za-z0-9_-]{20,}"),
        ("an AWS access key", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
        ("a Google key", r"\bAIza[0-9A-Za-z_-]{35}"),
        ("a Slack token", r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}"),
        ("a Stripe key", r"\b(?:[sr]k_(?:live|test)_|whsec_)[0-9A-Za-z]{16,}"),
        ("a Hugging Face token", r"\bhf_[A-Za-z0-9]{30,}"),
        ("an npm token", r"\bnpm_[A-Za-z0-9]{30,}"),
        ("a PyPI token", r"\bpypi-[A-Za-z0-9_-]{30,}"),
        ("a SendGrid key", r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
        ("a Kennel key", r"\bkn_[A-Za-z0-9_-]{20,}"),
        ("a signed token (JWT)", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    )
)


def warnings(env: Mapping[str, str | None]) -> list[str]:
    """One line for each variable whose value looks like a secret itself, in the map's order."""
    found = ((name, _kind(name, value)) for name, value in env.items() if value)
    return [
        f"{name} looks like {what}, which everything in the sandbox can read; keep it as a secret, and set {name} to "
        'getSecret("/secrets/...")'
        for name, what in found
        if what is not None
    ]


def _kind(name: str, value: str) -> str | None:
    """What a value looks like, once the references in it are taken out; None for nothing of the kind."""
    rest = _REFERENCE.sub("", value[:MAX_LOOKED_AT])
    for what, pattern in _KINDS:
        if pattern.search(rest):
            return what
    if _TELLING.search(name) and not _PUBLIC.search(name) and _random(rest):
        return "a secret's value"
    return None


def _random(value: str) -> bool:
    """Whether the value is one long word that nobody would choose: no path, address, template or number."""
    if (
        len(value) < LONG
        or any(mark in value for mark in (" ", "\n", "://", "${", "{{"))
        or value.startswith(("/", "~", "./"))
    ):
        return False
    letters = any(character.isalpha() for character in value)
    return letters and (any(c.isdigit() for c in value) or value.lower() != value) and _entropy(value) >= BITS


def _entropy(value: str) -> float:
    """Bits for each character, by how often each of them stands in the value itself."""
    return -sum(count / len(value) * math.log2(count / len(value)) for count in Counter(value).values())
