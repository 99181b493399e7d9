"""Owns the model of an installation that has none: it says what to set.

Made by assemble when no model is configured. Invariant: it never answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from kennel.domain.turn import Prompt
from kennel.wire.errors import error


class AbsentModel:
    """`ports.model.Model` without a model behind it."""

    async def answer(self, prompts: Sequence[Prompt]) -> AsyncIterator[str]:
        """See the port; MODEL_NOT_CONFIGURED always."""
        raise error("MODEL_NOT_CONFIGURED", "this installation has no model")
        yield ""

    async def close(self) -> None:
        """Has nothing to let go."""
