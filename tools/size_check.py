"""Refuses files over 500 lines, functions over 40, banned names and a median over 200; run by `./kennel test`."""

from __future__ import annotations

import ast
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BANNED = {"utils", "helpers", "common", "manager", "base", "misc", "util", "helper"}
MAX_FILE, MAX_MEDIAN, MAX_FUNCTION = 500, 200, 40


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its decorators and docstring."""
    first = node.body[0]
    start = node.lineno
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        start += (first.end_lineno or first.lineno) - first.lineno + 1
    return (node.end_lineno or node.lineno) - start + 1


def complaints(path: Path, text: str) -> list[str]:
    """Everything wrong with the size, opening or name of one file."""
    name, found = path.relative_to(ROOT), []
    lines = text.count("\n")
    if lines > MAX_FILE:
        found.append(f"{name}: {lines} lines (at most {MAX_FILE})")
    if path.stem in BANNED:
        found.append(f"{name}: a file is named for what it owns, not '{path.stem}'")
    tree = ast.parse(text)
    if lines > 5 and not ast.get_docstring(tree):
        found.append(f"{name}: opens without saying what it owns")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and body_lines(node) > MAX_FUNCTION:
            found.append(f"{name}:{node.lineno}: {node.name} has {body_lines(node)} lines (at most {MAX_FUNCTION})")
    return found


def main() -> int:
    files = sorted((ROOT / "src").rglob("*.py"))
    found: list[str] = []
    sizes = []
    for path in files:
        text = path.read_text()
        if text.count("\n") > 5:
            sizes.append(text.count("\n"))
        found += complaints(path, text)
    median = statistics.median(sizes) if sizes else 0
    if median > MAX_MEDIAN:
        found.append(f"median file has {median} lines (at most {MAX_MEDIAN})")
    for line in found:
        print(line)
    print(f"{len(files)} files, median {median:.0f} lines, longest {max(sizes, default=0)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
