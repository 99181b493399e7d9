"""Owns how advice of the server reaches a program: as Python's warnings.

Called by both halves' handles. Invariant: the text is the server's line, which holds no secret; the call it was about
has succeeded.
"""

from __future__ import annotations

import warnings

from kennel.wire.results import SandboxView


class KennelWarning(UserWarning):
    """What the server advises about something that it did."""


def passed_on(view: SandboxView) -> SandboxView:
    """The answer, once its advice was given."""
    for text in view.warnings:
        warnings.warn(text, KennelWarning, stacklevel=3)
    return view
