"""Owns a room's talk: its messages, the turns that are open, what a model is shown, what its reply looks like; no I/O.

Called by control/turns.py and folded into a room by domain/room.py. Invariants: a turn is open from its user's message
to its end, and only an open turn may add a reply; what is kept and what is sent is bounded, whatever people and model
wrote; a command's output never becomes a command.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import msgspec

from kennel.domain.event import Event
from kennel.domain.run_tags import trim

SAID = "room/message-said"
TURN_STARTED = "room/turn-started"
TURN_ENDED = "room/turn-ended"
COMMAND_STARTED = "room/command-started"
COMMAND_FINISHED = "room/command-finished"

MAX_TEXT = 32_768
"""Characters of one message of a person."""
MAX_USER_ID = 128
MAX_REPLY_JSON = 200 * 1024
"""Bytes of a reply as JSON; an event's payload holds 256 KiB."""
MAX_KEPT = 200
"""Messages a room's fold holds, whatever its settings ask for."""
MAX_KEPT_CHARACTERS = 1_000_000
MAX_PROMPT = 100_000
"""Characters of history shown to a model; older messages are left out first."""
SUMMARY = 500
"""Characters of a command's output that a reply shows."""
MAX_COMMANDS = 50
"""Commands of one answer of the model that are run."""

Outcome = Literal["replied", "failed", "cancelled", "interrupted"]

SYSTEM = (
    "You are Kennel, a brief assistant in a room that several people share. The room has a Linux sandbox with a shell"
    " whose directory and variables last. To run a command in it, write the exact command between <run> and </run>, one"
    " pair of tags for each command. Say in a sentence what you are about to do. Never guess or write a command's"
    " output: it is run after your answer and its output is added to it. Each person's message begins with the"
    " speaker's name in square brackets; do not begin yours so."
)


class Message(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """One line of talk; `ts` is milliseconds since 1970."""

    role: Literal["user", "agent"]
    text: str
    ts: int
    user_id: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """One message as a model is shown it."""

    role: Literal["system", "user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """A message and the turn it belongs to."""

    turn: str
    message: Message


@dataclass(frozen=True, slots=True)
class Talk:
    """Messages, oldest first, and the turns without an end, in the order they were asked for."""

    said: tuple[Said, ...] = ()
    open: tuple[str, ...] = ()
    size: int = 0

    def messages(self, count: int) -> list[Message]:
        """The last `count` messages."""
        return [one.message for one in self.said[-count:]] if count else []


def evolve(talk: Talk, event: Event) -> Talk:
    """The talk after one stamped event; the words of a turn that is over, or was never begun, change nothing."""
    payload = event.payload
    if event.type == SAID:
        turn, user = str(payload["turnId"]), payload["role"] == "user"
        if user == (turn in talk.open):
            return talk
        message = Message(
            role="user" if user else "agent",
            text=str(payload["text"]),
            ts=milliseconds(event.created_at),
            user_id=payload.get("userId"),
        )
        kept = _bounded((*talk.said, Said(turn, message)))
        opened = (*talk.open, turn) if user else talk.open
        return Talk(kept, opened, sum(len(one.message.text) for one in kept))
    if event.type == TURN_ENDED:
        return replace(talk, open=tuple(turn for turn in talk.open if turn != payload["turnId"]))
    return talk


def _bounded(said: tuple[Said, ...]) -> tuple[Said, ...]:
    """The newest messages that fit, the very newest in any case."""
    total, start = 0, len(said) - 1
    for index in range(len(said) - 1, max(len(said) - MAX_KEPT, 0) - 1, -1):
        total += len(said[index].message.text)
        if total > MAX_KEPT_CHARACTERS and index < len(said) - 1:
            break
        start = index
    return said[start:]


def milliseconds(created_at: str) -> int:
    """An event's time as milliseconds since 1970."""
    return round(datetime.fromisoformat(created_at).timestamp() * 1000)


def speaker(user_id: str | None) -> str:
    """A person's name as the model sees it: one line, no brackets, so that nobody can speak as another."""
    kept = "".join(" " if c in "[]\u2028\u2029" or unicodedata.category(c)[0] == "C" else c for c in user_id or "")
    return " ".join(kept.split())[:64] or "guest"


def prompts(talk: Talk, turn: str, *, context: int, instructions: str | None) -> list[Prompt]:
    """What the model is shown for `turn`: the system's words, up to `context` earlier messages, the new message.

    Earlier means: of turns that are over. They come turn by turn, so a question stands before its answer even when
    others spoke in between; a turn that failed has its question only.
    """
    order: dict[str, list[Message]] = {}
    for one in talk.said:
        if one.turn == turn or one.turn not in talk.open:
            order.setdefault(one.turn, []).append(one.message)
    asked = order.pop(turn, [])[:1]
    earlier = [message for messages in order.values() for message in messages]
    shown, size = [], 0
    for message in reversed(earlier[-context:] if context else []):
        size += len(message.text)
        if size > MAX_PROMPT:
            break
        shown.append(_shown(message))
    system = SYSTEM if not instructions else f"{SYSTEM}\n\nThis room's own instructions:\n{instructions}"
    return [Prompt("system", system), *reversed(shown), *(_shown(message) for message in asked)]


def _shown(message: Message) -> Prompt:
    if message.role == "agent":
        return Prompt("assistant", message.text)
    return Prompt("user", f"[{speaker(message.user_id)}] {message.text}")


def summary(stdout: bytes, stderr: bytes, exit_code: int) -> str:
    """What a command left, in short: the head of stdout, else of stderr, and a line for a bad exit code."""
    # At most four bytes make a character; a cut one at the end becomes U+FFFD beyond the summary.
    heads = (data[: SUMMARY * 4].decode(errors="replace")[:SUMMARY] for data in (stdout, stderr))
    told = next((head for head in heads if head), "[no output]")
    if exit_code:
        told += f"{'' if told.endswith(chr(10)) else chr(10)}[exit code {exit_code}]"
    return told


def output(command: str, told: str) -> str:
    """What a reply says of a command that ran to its end; `told` is its `summary`."""
    return f"\n\nOutput ({command}):\n{told}"


def failure(command: str, message: str) -> str:
    """What a reply says of a command that could not be run."""
    return f"\n\nError ({command}):\n{message}"


def reply(text: str, told: Iterable[str]) -> str:
    """The model's text without its tags, then what came of its commands; trimmed, and cut to what an event holds."""
    return cut(trim(text + "".join(told)), MAX_REPLY_JSON)


def outputs_for_model(told: Sequence[str]) -> Prompt:
    """The outputs of a round as the model is shown them for the next one."""
    return Prompt("user", "[kennel] What your commands gave:" + "".join(told))


def cut(text: str, limit: int) -> str:
    """The longest head of a text that has at most `limit` bytes as JSON."""
    if len(text) * 6 <= limit or len(msgspec.json.encode(text)) <= limit:
        return text
    low, high = 0, min(len(text), limit)
    while low < high:
        middle = (low + high + 1) // 2
        if len(msgspec.json.encode(text[:middle])) <= limit:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def plain(text: str) -> str:
    """A model's text as it can be kept: half surrogates and NUL become U+FFFD."""
    return "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)


def ended(turn: str, outcome: Outcome, *, code: str | None = None, message: str | None = None) -> dict[str, Any]:
    """The payload of a turn's end."""
    more: Mapping[str, Any] = {} if code is None else {"code": code, "error": (message or "")[:1000]}
    return {"turnId": turn, "outcome": outcome, **more}
