"""What rooms need of a language model; `adapters/model` provides it over any OpenAI-compatible server.

Invariant: an answer comes in pieces of bounded total size and in bounded time, or ends with a typed error; closing the
iterator ends the call to the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from kennel.domain.turn import Prompt


class Model(Protocol):
    """A model that answers a conversation."""

    def answer(self, prompts: Sequence[Prompt]) -> AsyncIterator[str]:
        """The pieces of its answer as they come; an answer that grows too long simply ends.

        Raises MODEL_NOT_CONFIGURED, or MODEL_FAILED for anything the server does wrong; both say what to do.
        """
        ...
