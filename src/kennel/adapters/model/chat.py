"""Owns talking to a language model: `ports.model.Model` through the `openai` client, over any compatible server.

Made by assemble. Invariants: an answer ends within `seconds` and after at most `characters`; whatever the server does
wrong is MODEL_FAILED with what to look at; the key is in no error and no log.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import openai

from kennel.adapters.model.bounded import make_client
from kennel.domain.turn import Prompt
from kennel.wire.errors import KennelError, error

HINT = "look at the model's server: KENNEL_AI_BASE_URL, KENNEL_AI_MODEL and KENNEL_AI_KEY must be right for it"
SHOWN = 300
"""Characters of a server's complaint that are passed on."""


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Where the model is and what an answer may take: seconds to connect, of silence, in all; tokens; characters."""

    base_url: str
    model: str
    key: str | None = None
    connect_seconds: float = 5.0
    idle_seconds: float = 60.0
    seconds: float = 300.0
    tokens: int = 2048
    characters: int = 65_536


class ChatModel:
    """One model of one server; `close` lets its connections go."""

    def __init__(self, options: ChatOptions) -> None:
        self._options = options
        self._client = openai.AsyncOpenAI(
            base_url=options.base_url,
            api_key=options.key or "none",
            organization="",
            project="",
            max_retries=0,
            http_client=make_client(options.connect_seconds, options.idle_seconds),
        )

    async def answer(self, prompts: Sequence[Prompt]) -> AsyncIterator[str]:
        """See the port."""
        deadline = time.monotonic() + self._options.seconds
        stream: Any = None
        try:
            stream = await self._within(self._begin(prompts), deadline)
            left = self._options.characters
            whole = False
            while left > 0 and (chunk := await self._within(anext(stream, None), deadline)) is not None:
                text, finished = _piece(chunk)
                whole = whole or finished
                if text:
                    yield text[:left]
                    left -= len(text)
            if left > 0 and not whole:
                raise _failed("its answer was cut off")
        except (openai.OpenAIError, httpx2.HTTPError, httpx2.InvalidURL) as fault:
            raise self._told(fault) from None
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
            raise _failed("it sent something that is no answer") from None
        finally:
            if stream is not None:
                with contextlib.suppress(httpx2.HTTPError):
                    await stream.close()

    async def _begin(self, prompts: Sequence[Prompt]) -> Any:
        return await self._client.chat.completions.create(
            model=self._options.model,
            messages=[{"role": one.role, "content": one.text} for one in prompts],  # type: ignore[misc]
            max_tokens=self._options.tokens,
            stream=True,
        )

    async def _within(self, work: Any, deadline: float) -> Any:
        """What `work` comes to before the silence or the whole answer has lasted too long."""
        left = deadline - time.monotonic()
        try:
            async with asyncio.timeout(min(self._options.idle_seconds, left)):
                return await work
        except TimeoutError:
            seconds = self._options.idle_seconds if left > self._options.idle_seconds else self._options.seconds
            raise _failed(f"it did not answer within {seconds:g} s") from None

    def _told(self, fault: Exception) -> KennelError:
        """The client's error as ours."""
        if isinstance(fault, openai.APITimeoutError):
            return _failed("it did not answer in time")
        if isinstance(fault, openai.APIStatusError):
            return _failed(f"its server answered {fault.status_code}: {self._clean(fault)}", status=fault.status_code)
        if isinstance(fault, openai.APIConnectionError):
            cause = fault.__cause__ or fault
            return _failed(f"its server cannot be reached or broke off: {self._clean(cause)}")
        return _failed(self._clean(fault))

    def _clean(self, fault: BaseException) -> str:
        """A fault's text, short, in one line and without the key."""
        text = str(fault) or type(fault).__name__
        if self._options.key:
            text = text.replace(self._options.key, "***")
        return " ".join("".join(c if c.isprintable() else " " for c in text[: SHOWN * 4]).split())[:SHOWN]

    async def close(self) -> None:
        """Ends every connection."""
        await self._client.close()


def _piece(chunk: Any) -> tuple[str, bool]:
    """The text in one chunk, and whether the server says that the answer ends with it."""
    try:
        choices = chunk.choices
        if not choices:
            return "", False
        text, reason = choices[0].delta.content, choices[0].finish_reason
    except (AttributeError, TypeError, IndexError, KeyError):
        raise _failed("it sent something that is no answer") from None
    if text is not None and not isinstance(text, str):
        raise _failed("it sent something that is no answer")
    return text or "", reason is not None


def _failed(what: str, *, status: int | None = None) -> KennelError:
    details = None if status is None else {"status": status}
    return error("MODEL_FAILED", f"the model failed: {what}", details=details, hint=HINT)
