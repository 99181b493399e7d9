"""Owns how values become words on a page: sizes, times, ages, durations, and a program's output without its escapes.

Called by the templates through `rendering`, and by pages. Invariant: everything returned is plain text; markup is made
by templates alone, which escape it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from kennel.domain.characters import Characters

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_AGES = ((60, "second", 1), (3600, "minute", 60), (86400, "hour", 3600), (86400 * 60, "day", 86400))
# CSI, OSC (ended by BEL or ST), and two-byte escapes: colours and cursor moves mean nothing on a page.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\^_])")
# The beginning of one at the end of a piece, or of a line's end; the rest may come with the next piece.
_UNFINISHED = re.compile(r"(?:\r|\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,4096}\x1b?)?)\Z")
_LONGEST = 4200
_CONTROLS = {c: 0x2400 + c for c in range(32) if c not in (9, 10)} | {127: 0x2421}
_IN_NAMES = (
    {c: 0x2400 + c for c in range(32)}
    | {127: 0x2421}
    | dict.fromkeys(
        (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), *range(0x80, 0xA0)), 0xFFFD
    )
)


def size(count: int | float) -> str:
    """Bytes for people, in powers of 1024: `0 B`, `1.5 KiB`, `12 MiB`."""
    value, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if value < 1023.95 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}".replace(".0 ", " ")


def moment(iso: str) -> datetime | None:
    """The time an ISO 8601 text means, None when it means none."""
    try:
        found = datetime.fromisoformat(iso.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def age(iso: str, now: datetime | None = None) -> str:
    """How long ago, as `3 minutes ago`; the text itself when it is no time."""
    then = moment(iso)
    if then is None:
        return iso
    seconds = max(0.0, ((now or datetime.now(UTC)) - then).total_seconds())
    if seconds < 5:
        return "just now"
    for limit, word, unit in _AGES:
        if seconds < limit:
            number = int(seconds // unit)
            return f"{number} {word}{'' if number == 1 else 's'} ago"
    return then.date().isoformat()


def exact(iso: str) -> str:
    """The moment itself, in UTC to the second."""
    then = moment(iso)
    return iso if then is None else then.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(milliseconds: float) -> str:
    """`12 ms`, `1.4 s`, `2 min 5 s`."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def visible(data: bytes) -> str:
    """A file's text with its control characters made visible, line ends and tabs kept."""
    return data.decode(errors="replace").replace("\r\n", "\n").translate(_CONTROLS)


def one_line(words: str) -> str:
    """Words on one line: control characters, line ends too, and marks that reorder made visible."""
    return words.translate(_IN_NAMES)


def words(said: str) -> str:
    """What people and models wrote, with line ends; terminal escapes removed, other control characters made visible."""
    return _ESCAPES.sub("", said.replace("\r\n", "\n")).translate(_CONTROLS)


def name(data: bytes) -> str:
    """A file's name or path for people, on one line."""
    return one_line(data.decode(errors="replace"))


def output(data: bytes) -> str:
    """A program's output as text: terminal escapes removed, other control characters made visible."""
    return words(data.decode(errors="replace"))


class Output:
    """Output that comes in pieces, cut anywhere: `take` is `output` of what is whole; a bare `\\r` begins a line."""

    def __init__(self) -> None:
        self._characters, self._held = Characters(), ""

    @property
    def holds(self) -> bool:
        """Something has begun and not ended."""
        return bool(self._held) or self._characters.holds

    def take(self, data: bytes) -> str:
        """What can be shown now; an escape or a character that has only begun waits for the next piece."""
        said = self._held + self._characters.take(data).decode(errors="replace")
        tail = _UNFINISHED.search(said[-_LONGEST:])
        self._held = tail[0] if tail is not None else ""
        whole = said[: len(said) - len(self._held)]
        return words(whole.replace("\r\n", "\n").replace("\r", "\n"))
