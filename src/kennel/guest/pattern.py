"""Owns searching lines for a regular expression in linear time: parsed here, run as an automaton, never backtracking.

Used by line_watch. Invariant: each character costs one step however the pattern is made, because all ways to match are
followed at once; what cannot be done so (back references, looking around) is refused. The usual syntax otherwise:
`. [] () (?:) | * + ? {m,n} ^ $ \\d \\w \\s` and a leading `(?i)`; groups do not capture.
"""

from __future__ import annotations

from .refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Test = Callable[[str], bool]

MOST_CHARACTERS = 1000
MOST_STATES = 4000
_MOST_REPEAT = 500
_MOST_DEPTH = 50
_MOST_CACHED = 4000
_START, _END, _MATCH, _SPLIT = "start", "end", "match", "split"
_WHITE = frozenset(" \t\n\r\f\v")
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0", "a": "\a"}
_CLASSES: dict[str, Test] = {
    "d": str.isdecimal,
    "w": lambda character: character.isalnum() or character == "_",
    "s": lambda character: character in _WHITE or character.isspace(),
}


def _refuse(why: str) -> Refusal:
    return Refusal("VALIDATION_FAILED", f"the pattern cannot be used: {why}")


class _Parser:
    """Turns a pattern into states; each is (test or kind, next, other)."""

    def __init__(self, text: str) -> None:
        if len(text) > MOST_CHARACTERS:
            raise _refuse(f"it has more than {MOST_CHARACTERS} characters")
        self.folded = text.startswith("(?i)")
        self._text = text.removeprefix("(?i)")
        self._at = 0
        self._depth = 0
        self.states: list[tuple[Test | str, int, int]] = [(_MATCH, -1, -1)]
        self.first = self._either(0)
        if self._at < len(self._text):
            raise _refuse("a ')' without its '('")

    def _add(self, what: Test | str, following: int, other: int = -1) -> int:
        if len(self.states) >= MOST_STATES:
            raise _refuse("it is too large")
        self.states.append((what, following, other))
        return len(self.states) - 1

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise _refuse("it ends too early")
        self._at += 1
        return character

    def _either(self, following: int) -> int:
        """Alternatives, built towards the state that follows them."""
        start = self._at
        first = self._sequence(following)
        while self._peek() == "|":
            self._at += 1
            first = self._add(_SPLIT, first, self._sequence(following))
        if self._at == start and not self._depth:
            return following
        return first

    def _sequence(self, following: int) -> int:
        """Pieces one after another: found from the left, built from the right, each from its place in the text."""
        places = []
        while self._peek() not in ("", "|", ")"):
            places.append(self._at)
            self._skip_piece()
        end = self._at
        for place in reversed(places):
            self._at = place
            following = self._piece(following)
        self._at = end
        return following

    def _skip_piece(self) -> None:
        """Moves past one piece and what repeats it, without building it."""
        character = self._take()
        if character == "\\":
            self._escaped()
        elif character == "[":
            self._set()
        elif character == "(":
            self._skip_group()
        elif character in "*+?":
            raise _refuse(f"nothing stands before {character!r}")
        self._repeats()

    def _skip_group(self) -> None:
        self._open_group()
        while self._peek() != ")":
            if self._peek() == "|":
                self._at += 1
            else:
                self._skip_piece()
        self._at += 1
        self._depth -= 1

    def _open_group(self) -> None:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise _refuse("it is nested too deeply")
        if self._peek() == "?":
            self._at += 1
            if self._take() != ":":
                raise _refuse("only (?:…) is known of the groups with a question mark")

    def _piece(self, following: int) -> int:
        start = self._at
        self._skip_piece()
        end = self._at
        self._at = start
        self._atom(None)
        low, high = self._repeats()
        first = following
        if high is None:
            loop = self._add(_SPLIT, -1, following)
            self._at = start
            self.states[loop] = (_SPLIT, self._atom(loop), following)
            first = loop
        for _ in range((high or low) - low):
            self._at = start
            first = self._add(_SPLIT, self._atom(first), following)
        for _ in range(low):
            self._at = start
            first = self._atom(first)
        self._at = end
        return first

    def _atom(self, following: int | None) -> int:
        """One character, set, anchor or group; with None only moves past it."""
        character = self._take()
        if character == "(":
            if following is None:
                self._skip_group()
                return -1
            self._open_group()
            first = self._either(following)
            if self._take() != ")":
                raise _refuse("a '(' without its ')'")
            self._depth -= 1
            return first
        test: Test | str
        if character == "^":
            test = _START
        elif character == "$":
            test = _END
        elif character == ".":
            test = _anything
        elif character == "[":
            test = self._set()
        elif character == "\\":
            test = self._escaped()
        else:
            test = self._literal(character)
        return -1 if following is None else self._add(test, following)

    def _literal(self, character: str) -> Test:
        if self.folded:
            folded = character.lower()
            return lambda one: one.lower() == folded
        return lambda one: one == character

    def _escaped(self) -> Test:
        character = self._take()
        known = self._class(character)
        return known if known is not None else self._literal(self._named(character))

    @staticmethod
    def _class(character: str) -> Test | None:
        known = _CLASSES.get(character.lower())
        if known is None:
            return None
        return known if character.islower() else lambda one: not known(one)

    def _named(self, character: str) -> str:
        if character in "xu":
            digits = "".join(self._take() for _ in range(2 if character == "x" else 4))
            try:
                return chr(int(digits, 16))
            except ValueError:
                raise _refuse(f"\\{character} takes hexadecimal digits") from None
        if character in _NAMED:
            return _NAMED[character]
        if character.isalnum():
            raise _refuse(f"\\{character} is not known here")
        return character

    def _set(self) -> Test:
        negated = self._peek() == "^"
        if negated:
            self._at += 1
        singles: set[str] = set()
        ranges: list[tuple[str, str]] = []
        tests: list[Test] = []
        first = True
        while first or self._peek() != "]":
            first = False
            low = self._member(tests)
            if low is None:
                continue
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._member(tests)
                if high is None or high < low:
                    raise _refuse("a range that goes nowhere")
                ranges.append((low, high))
            else:
                singles.add(low)
        self._at += 1
        return _member_test(frozenset(singles), tuple(ranges), tuple(tests), negated, self.folded)

    def _member(self, tests: list[Test]) -> str | None:
        character = self._take()
        if character != "\\":
            return character
        character = self._take()
        known = self._class(character)
        if known is None:
            return self._named(character)
        tests.append(known)
        return None

    def _repeats(self) -> tuple[int, int | None]:
        """How often the piece before may stand: (1, 1) without a sign for it."""
        sign = self._peek()
        bounds: tuple[int, int | None] = (1, 1)
        if sign and sign in "*+?":
            self._at += 1
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        elif sign == "{":
            end = self._text.find("}", self._at)
            numbers = self._text[self._at + 1 : end].split(",") if end > 0 else []
            if 1 <= len(numbers) <= 2 and numbers[0].isdecimal() and all(n.isdecimal() or not n for n in numbers):
                self._at = end + 1
                low = int(numbers[0])
                bounds = (low, low if len(numbers) == 1 else int(numbers[1]) if numbers[1] else None)
            else:
                return bounds
        else:
            return bounds
        if max(bounds[0], bounds[1] or 0) > _MOST_REPEAT or (bounds[1] is not None and bounds[1] < bounds[0]):
            raise _refuse(f"a piece is repeated at most {_MOST_REPEAT} times")
        if self._peek() == "?":
            self._at += 1  # as few as possible: where a match begins and ends is of no interest here
        elif self._peek() and self._peek() in "*+":
            raise _refuse("a piece is repeated twice")
        return bounds


def _anything(character: str) -> bool:
    return True


def _member_test(
    singles: frozenset[str], ranges: tuple[tuple[str, str], ...], tests: tuple[Test, ...], negated: bool, folded: bool
) -> Test:
    def member(one: str) -> bool:
        forms = (one, one.lower(), one.upper()) if folded else (one,)
        found = any(
            form in singles or any(low <= form <= high for low, high in ranges) or any(test(form) for test in tests)
            for form in forms
        )
        return found is not negated

    return member


class Pattern:
    """A pattern that was understood; VALIDATION_FAILED otherwise."""

    def __init__(self, text: str) -> None:
        parsed = _Parser(text)
        self.states = parsed.states
        self.first = parsed.first

    def search(self) -> Search:
        """A search in one line after another."""
        return Search(self)

    def closure(self, wanted: list[int], at_start: bool, at_end: bool) -> frozenset[int]:
        """Every state that can be reached without a character."""
        found: set[int] = set()
        while wanted:
            state = wanted.pop()
            if state < 0 or state in found:
                continue
            found.add(state)
            what, following, other = self.states[state]
            if what is _SPLIT:
                wanted += (following, other)
            elif (what is _START and at_start) or (what is _END and at_end):
                wanted.append(following)
        return frozenset(found)


class Search:
    """Where a search stands in its line; states met are remembered with where each character leads."""

    __slots__ = ("_cache", "_now", "_pattern", "_start")

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._start = pattern.closure([pattern.first], True, False)
        self._cache: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._now = self._start

    def reset(self) -> None:
        """A new line begins."""
        self._now = self._start

    def feed(self, text: str) -> bool:
        """Whether it is found once `text` is read."""
        now, cache = self._now, self._cache
        if 0 in now:
            return True
        for character in text:
            following = cache.get((now, character))
            now = self._step(now, character) if following is None else following
            if 0 in now:
                self._now = now
                return True
        self._now = now
        return False

    def end(self) -> bool:
        """Whether it is found because the line ends here."""
        return 0 in self._pattern.closure(list(self._now), self._now is self._start, True)

    def _step(self, now: frozenset[int], character: str) -> frozenset[int]:
        states = self._pattern.states
        wanted = [self._pattern.first]
        for state in now:
            what, following, _ = states[state]
            if not isinstance(what, str) and what(character):
                wanted.append(following)
        following_states = self._pattern.closure(wanted, False, False)
        if len(self._cache) >= _MOST_CACHED:
            self._cache.clear()
        self._cache[now, character] = following_states
        return following_states
