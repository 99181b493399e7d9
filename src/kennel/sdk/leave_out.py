"""Owns what is left out of snapshots, as callers say it and as the wire has it.

Called by both halves of the SDK. Invariant: a word this does not know goes to the server as it is, which refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def leave_out_words(leave_out: Mapping[str, Any]) -> dict[str, Any]:
    """`{"node_modules": False, "patterns": ("*.log",)}` as the wire has it; None counts as not said."""
    words = {"nodeModules" if word == "node_modules" else word: value for word, value in leave_out.items()}
    return {
        word: value if isinstance(value, bool | str) else list(value)
        for word, value in words.items()
        if value is not None
    }
