"""Owns what bash's `export -p` says: exported variables as names and values.

Called by session when a state is asked for or a shell replaced. Invariant: text of any kind gives a dictionary; what is
not an assignment bash would print is left out.
"""

from __future__ import annotations

_PREFIXES = ("declare -", "export ")
_OWN = frozenset({"PWD", "OLDPWD", "SHLVL", "_", "BASHOPTS", "SHELLOPTS"})
"""Variables a new shell sets for itself."""
_SIMPLE = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_DIGITS = {"x": (16, 2), "u": (16, 4), "U": (16, 8)}


def parse(text: str) -> dict[str, str]:
    """The variables in the output of `export -p`; bytes that are not UTF-8 stay as surrogate escapes."""
    found: dict[str, str] = {}
    at = 0
    while 0 <= at < len(text):
        if text.startswith(_PREFIXES, at):
            name, value, at = _assignment(text, at)
            if value is not None and name not in _OWN:
                found[name] = value
        at = text.find("\n", at) + 1 or len(text)
    return found


def _assignment(text: str, at: int) -> tuple[str, str | None, int]:
    """The name, its value (None when it has none, or is an array) and where the reading ended."""
    line = text.find("\n", at)
    line = len(text) if line < 0 else line
    equals = text.find("=", at, line)
    if equals < 0:
        return "", None, at
    words = text[at:equals].split(" ")
    name, start = words[-1], equals + 1
    if not name.isidentifier():
        return "", None, at
    if text.startswith('"', start):
        value, end = _double_quoted(text, start + 1)
        return name, value, end
    if text.startswith("$'", start):
        value, end = _ansi_quoted(text, start + 2)
        return name, value, end
    return name, None, at


def _double_quoted(text: str, at: int) -> tuple[str, int]:
    pieces: list[str] = []
    while at < len(text) and text[at] != '"':
        if text[at] == "\\" and at + 1 < len(text):
            at += 1
        pieces.append(text[at])
        at += 1
    return "".join(pieces), at


def _ansi_quoted(text: str, at: int) -> tuple[str, int]:
    """The inside of $'…'. Escaped bytes gather into UTF-8 characters as the shell meant them."""
    pieces = bytearray()
    while at < len(text) and text[at] != "'":
        if text[at] == "\\" and at + 1 < len(text):
            piece, at = _escape(text, at + 1)
            pieces += piece
        else:
            pieces += text[at].encode("utf-8", "surrogateescape")
            at += 1
    return pieces.decode("utf-8", "surrogateescape"), at


def _escape(text: str, at: int) -> tuple[bytes, int]:
    sign = text[at]
    if sign in "01234567":
        digits = _run_of(text, at, "01234567", 3)
        return bytes([int(digits, 8) & 255]), at + len(digits)
    if sign in _DIGITS:
        base, most = _DIGITS[sign]
        digits = _run_of(text, at + 1, "0123456789abcdefABCDEF", most)
        number = int(digits, base) if digits else 0
        if sign == "x":
            return bytes([number & 255]), at + 1 + len(digits)
        if number < 0x110000 and not 0xD800 <= number < 0xE000:
            return chr(number).encode(), at + 1 + len(digits)
        return b"?", at + 1 + len(digits)
    return _SIMPLE.get(sign, "\\" + sign).encode("utf-8", "surrogateescape"), at + 1


def _run_of(text: str, at: int, alphabet: str, most: int) -> str:
    end = at
    while end < len(text) and end - at < most and text[end] in alphabet:
        end += 1
    return text[at:end]
