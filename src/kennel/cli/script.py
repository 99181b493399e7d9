"""Owns `kennel run`: Python text evaluated on this machine as the body of a function of `itx`.

Called by `__main__`. Invariant: the text's own lines and numbers are the ones in its traceback; nothing of it is kept.
"""

from __future__ import annotations

import ast
import linecache
import sys
import traceback
from pathlib import Path
from types import CodeType, TracebackType
from typing import Annotated, Any

from cyclopts import Parameter

from kennel.cli.flags import DEFAULTS, Flags, misuse
from kennel.cli.output import show_json
from kennel.wire.errors import KennelError


def run(
    *,
    eval: Annotated[str | None, Parameter(name=("--eval", "-e"), allow_leading_hyphen=True, help="The text.")] = None,
    file: Annotated[str | None, Parameter(allow_leading_hyphen=True, help="A file with the text; - is stdin.")] = None,
    flags: Flags = DEFAULTS,
) -> int:
    """Run Python with `itx` in scope and print what it returns.

    The text is the body of a function: `return VALUE` ends it, and the value of a last expression is returned too.
    A failure prints the traceback and exits with 1.
    """
    if (eval is None) == (file is None):
        raise misuse("give either -e 'PYTHON' or --file FILE")
    name, text = ("<run>", eval) if eval is not None else _read(str(file))
    with flags.client() as itx:
        try:
            scope: dict[str, Any] = {"__name__": "__kennel_run__", "itx": itx}
            exec(compiled(str(text), name), scope)
            value = scope["__body__"]()
        except Exception as failure:  # noqa: BLE001 - whatever the text raises is its result
            _trace(failure)
            return 1
    _show(value, flags.json)
    return 0


def compiled(text: str, name: str) -> CodeType:
    """Code that defines `__body__`, the text as a function without arguments; SyntaxError as the text has it."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = ast.parse(text, name)
    body = module.body
    if body and isinstance(body[-1], ast.Expr):
        body[-1] = ast.copy_location(ast.Return(body[-1].value), body[-1])
    shell = ast.parse("def __body__(): pass", name)
    function = shell.body[0]
    if isinstance(function, ast.FunctionDef) and body:
        function.body = body
    return compile(shell, name, "exec")


def _read(file: str) -> tuple[str, str]:
    """A name for tracebacks and the text."""
    if file == "-":
        return "<stdin>", sys.stdin.read()
    try:
        return file, Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise misuse(f"{file} cannot be read: {failure}") from failure


def _trace(failure: Exception) -> None:
    """The traceback from the text's own first line on, and an error's hint."""
    frames: TracebackType | None = failure.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_name != "__body__":
        frames = frames.tb_next
    traceback.print_exception(type(failure), failure, frames)
    if isinstance(failure, KennelError) and failure.hint:
        sys.stderr.write(f"hint: {failure.hint}\n")


def _show(value: Any, as_json: bool) -> None:
    """Prints a returned value: text as it is, answers and containers as JSON, anything else by its repr."""
    import msgspec

    if as_json:
        show_json(value)
    elif isinstance(value, str):
        print(value)
    elif isinstance(value, msgspec.Struct | dict | list | tuple):
        show_json(value)
    elif value is not None:
        print(repr(value))
