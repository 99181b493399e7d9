# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns the handle on one shell session of a sandbox: commands that share directory and variables.

Called by programs through `box.create_session()` and `box.get_session(id)`. Invariant: a handle holds a name only;
letting it go closes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kennel.wire.results import ExecResult

if TYPE_CHECKING:
    from kennel.sdk._sync.sandbox import Sandbox


class Session:
    """One session, by its name."""

    def __init__(self, sandbox: Sandbox, session_id: str) -> None:
        self.sandbox = sandbox
        self.id = session_id

    def __repr__(self) -> str:
        return f"Session({self.id!r} in {self.sandbox.path!r})"

    def exec(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        timeout: float | None = None,
        encoding: str = "utf8",
        max_bytes: int | None = None,
    ) -> ExecResult:
        """Runs a command after those before it, in the directory and with the variables they left."""
        return self.sandbox.exec(
            command, cwd=cwd, env=env, stdin=stdin, timeout=timeout, session_id=self.id, encoding=encoding,
            max_bytes=max_bytes,
        )  # fmt: skip

    def delete(self) -> None:
        """Closes the session and ends what runs in it."""
        self.sandbox.delete_session(self.id)
