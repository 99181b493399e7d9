"""Owns the `<run>…</run>` tags in a model's text: which commands it asks for, and the text without them.

Called by control/turns.py on the model's words alone, never on a person's and never on a command's output. Invariants:
time and memory follow the text's length, whatever it holds; what is not a whole tag stays as text.
"""

from __future__ import annotations

from typing import NamedTuple

OPEN, CLOSE = "<run>", "</run>"

BLANKS = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f"
    "\u3000\ufeff"
)
"""What the original's `trim` takes away; Python's own `strip` has another list."""


class Tagged(NamedTuple):
    """A model's text without its tags, trimmed, and the commands in them, trimmed, in order, empty ones left out."""

    text: str
    commands: tuple[str, ...]


def trim(text: str) -> str:
    """The text without blanks at its ends."""
    return text.strip(BLANKS)


def parse(text: str) -> Tagged:
    """Takes the tags out of a text: an opening one lasts to the next closing one, so tags do not nest.

    An opening tag that nothing closes, and a closing tag that nothing opened, are text.
    """
    kept: list[str] = []
    commands: list[str] = []
    at = 0
    while (start := text.find(OPEN, at)) >= 0:
        end = text.find(CLOSE, start + len(OPEN))
        if end < 0:
            break
        kept.append(text[at:start])
        command = trim(text[start + len(OPEN) : end])
        if command:
            commands.append(command)
        at = end + len(CLOSE)
    kept.append(text[at:])
    return Tagged(trim("".join(kept)), tuple(commands))
