"""What an attack needs of a sandbox, whoever made it: run a program inside, put a file inside.

Implemented by bundle.py (runc alone, the walls under test) and pet.py (a real installation, through its API).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Ran:
    """What a program in the sandbox wrote, and its exit code (128 + n for signal n)."""

    code: int
    out: str
    err: str


class Walls(Protocol):
    """One sandbox. `first_id` is the outside id of its root; `hidden` are words that must not be readable inside."""

    first_id: int
    hidden: tuple[str, ...]

    def run(
        self, argv: Sequence[str], *, cwd: str = "/", uid: int = 0, stdin: bytes = b"", timeout: float = 60
    ) -> Ran: ...

    def put(self, name: str, content: bytes, mode: int = 0o755) -> None: ...
