"""Owns the flags that every command takes, and the reading of `K=V` words.

Called by every command. Invariant: a client exists only inside `with flags.client()`, and its connections end there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from kennel.wire.errors import KennelError

if TYPE_CHECKING:
    from kennel import Kennel

Name = Annotated[str, Parameter(help="NAME or /sandboxes/NAME.")]
"""A sandbox, as people type it."""

Words = Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)]
"""A flag that may be given again and again."""


@Parameter(name="*")
@dataclass(frozen=True)
class Flags:
    """What every command takes."""

    project: Annotated[str | None, Parameter(help="The project; else KENNEL_PROJECT, else 'default'.")] = None
    url: Annotated[str | None, Parameter(help="The server; else KENNEL_URL, else the one on this machine.")] = None
    data: Annotated[Path | None, Parameter(help="Data folder of the one on this machine; else KENNEL_DATA.")] = None
    json: Annotated[bool, Parameter(negative=(), show_default=False, help="Print JSON.")] = False

    def client(self) -> Kennel:
        """A client for these flags; use it in a `with` block."""
        from kennel import Kennel

        return Kennel(self.project, url=self.url, data=self.data)


DEFAULTS = Flags()


def misuse(message: str, hint: str | None = None) -> KennelError:
    """What the caller typed cannot be meant; ends with exit code 2."""
    return KennelError("USAGE", message, hint=hint)


def pairs(words: Iterable[str], flag: str) -> dict[str, str]:
    """`K=V` words as a dict; the last of equal keys counts."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise misuse(f"{flag} takes NAME=VALUE, not {word!r}")
        found[key] = value
    return found
