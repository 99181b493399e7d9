"""Owns `kennel run-code`: one cell in a code context of a sandbox, its output live, its results shown.

Called by `__main__`. Invariants: what the cell prints passes as it comes; a cell that raised ends with 1 and its
traceback on standard error; Ctrl-C interrupts the cell.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from kennel.cli.flags import DEFAULTS, Flags, Name, Words, misuse, pairs
from kennel.cli.output import printable, show_json

if TYPE_CHECKING:
    from kennel import CodeEvent, CodeResult


def run_code(
    name: Name,
    code: Annotated[str | None, Parameter(help="The code; without it, `--file` or standard input.")] = None,
    /,
    *,
    file: Annotated[Path | None, Parameter(help="A file of this machine that holds the code.")] = None,
    language: Annotated[str, Parameter(help="python, javascript or typescript.")] = "python",
    context: Annotated[str | None, Parameter(help="A context's id; the language's default one unless set.")] = None,
    timeout: Annotated[float | None, Parameter(help="Seconds, then the cell is interrupted.")] = None,
    env: Annotated[Words, Parameter(help="NAME=VALUE for this cell; again for more.")] = (),
    flags: Flags = DEFAULTS,
) -> int:
    """Run code in a sandbox whose variables last from one call to the next: kennel run-code NAME 'x = 1'"""
    text, variables = _code(code, file), pairs(env, "--env")
    with flags.client() as itx:
        box = itx.sandboxes.get(name)
        if flags.json:
            execution = box.run_code(text, context=context, language=language, timeout=timeout, env=variables)
            show_json(execution)
            return 1 if execution.error is not None else 0
        failed = False
        events = box.run_code_stream(text, context=context, language=language, timeout=timeout, env=variables)
        with events:
            for event in events:
                failed = failed or event.error is not None
                _show(event)
    return 1 if failed else 0


def _code(code: str | None, file: Path | None) -> str:
    if code is not None and file is not None:
        raise misuse("give the code or --file, not both", hint="kennel run-code NAME 'print(1)'")
    if code is not None:
        return code
    if file is not None:
        return file.read_text()
    return sys.stdin.read()


def _show(event: CodeEvent) -> None:
    if event.type in ("stdout", "stderr"):
        stream = sys.stdout if event.type == "stdout" else sys.stderr
        stream.buffer.write(event.text.encode(errors="replace"))
        stream.flush()
    elif event.result is not None:
        print(_told(event.result), flush=True)
    elif event.error is not None:
        lines = event.error.traceback or [f"{event.error.name}: {event.error.value}"]
        print("\n".join(printable(line) for line in lines), file=sys.stderr, flush=True)
    elif event.type == "truncated":
        print("kennel: the connection broke, and some output is gone", file=sys.stderr, flush=True)
    elif event.end is not None and event.end.truncated:
        print(f"kennel: {event.end.dropped_bytes} bytes of output were not kept", file=sys.stderr, flush=True)


def _told(result: CodeResult) -> str:
    """A result's text; what has none is named by its formats."""
    if result.text is not None:
        return "\n".join(printable(line) for line in result.text.split("\n"))
    return f"[{', '.join(result.formats() or result.omitted)}]"
