"""Writes src/kennel/sdk/_sync from src/kennel/sdk/_async; with --check it only says whether that is still true.

Run by hand after a change of the SDK, with --check by the tests. Invariant: the output depends on the input alone.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE, TARGET = ROOT / "src/kennel/sdk/_async", ROOT / "src/kennel/sdk/_sync"
HEADER = "# Generated from sdk/_async by tools/make_sync.py; change it there.\n"

FIRST_PARTY = 'lint.isort.known-first-party = ["kennel"]'

DROPPED = {"async", "await"}
RENAMED = {
    "asyncio": "time",
    "_async": "_sync",
    "AbstractAsyncContextManager": "AbstractContextManager",
    "aclose": "close",
    "anext": "next",
    "aiter_stream": "iter_stream",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "StopAsyncIteration": "StopIteration",
}
PROSE = {r"\b(?:async|await) ": "", r"\basynchronous half\b": "synchronous half"}


def renamed(name: str) -> str:
    """The synchronous name of one word: AsyncThing → Thing, and the table above."""
    return RENAMED.get(name) or re.sub(r"^Async(?=[A-Z])", "", name)


def in_text(text: str) -> str:
    """A string or comment with its code words renamed."""
    for pattern, replacement in PROSE.items():
        text = re.sub(pattern, replacement, text)
    return re.sub(r"\bAsync(?=[A-Z])", "", text)


def translated(source: str) -> str:
    """The synchronous text of one asynchronous module, not yet formatted."""
    lines = source.splitlines(keepends=True)
    out: list[str] = []
    row, column, swallow = 1, 0, False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        between = _between(lines, (row, column), token.start)
        out.append("" if swallow else between)
        swallow = token.type == tokenize.NAME and token.string in DROPPED
        if token.type == tokenize.NAME:
            out.append("" if swallow else renamed(token.string))
        elif token.type in (tokenize.STRING, tokenize.COMMENT):
            out.append(in_text(token.string))
        else:
            out.append(token.string)
        row, column = token.end
    return HEADER + "".join(out)


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """The blanks of the source between two positions."""
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]] if start[0] <= len(lines) else ""
    middle = "".join(lines[start[0] : end[0] - 1])
    last = lines[end[0] - 1][: end[1]] if end[0] <= len(lines) else ""
    return lines[start[0] - 1][start[1] :] + middle + last


def formatted(text: str, name: str) -> str:
    """The text as ruff leaves it: imports sorted, lines laid out."""
    ruff = [sys.executable, "-m", "ruff"]
    # Without the setting, import order would depend on which files of the target exist already.
    tidy = ["check", "--fix-only", "--unsafe-fixes", "--select", "I,UP028", "--config", FIRST_PARTY, "-q"]
    for step in (tidy, ["format", "-q"]):
        command = [*ruff, *step, "--stdin-filename", str(TARGET / name), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def main(arguments: list[str]) -> int:
    wanted = {path.name: formatted(translated(path.read_text()), path.name) for path in sorted(SOURCE.glob("*.py"))}
    present = {path.name: path.read_text() for path in TARGET.glob("*.py")}
    stale = sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))
    if "--check" in arguments:
        for name in stale:
            print(f"{TARGET.relative_to(ROOT)}/{name} is stale; run tools/make_sync.py")
        return 1 if stale else 0
    for name in stale:
        if name in wanted:
            (TARGET / name).write_text(wanted[name])
        else:
            (TARGET / name).unlink()
    print(f"{len(stale)} of {len(wanted)} files written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
