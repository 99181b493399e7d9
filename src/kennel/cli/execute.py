"""Owns `kennel exec`: one command in a sandbox, with this process's stdin, stdout, stderr and exit code.

Called by `__main__`. Invariant: not one byte is added, lost or changed between the two ends.
"""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from kennel.cli.flags import DEFAULTS, Flags, Name, Words, misuse, pairs
from kennel.cli.output import show_json, warn
from kennel.wire.errors import error

MAX_STDIN = 16 * 1024 * 1024


def execute(
    name: Name,
    /,
    *argv: Annotated[str, Parameter(help="The program and its arguments, after `--`.")],
    cwd: Annotated[str | None, Parameter(help="Directory to run in; /workspace unless set.")] = None,
    env: Annotated[Words, Parameter(help="NAME=VALUE for this command; again for more.")] = (),
    user: Annotated[str | None, Parameter(help="A name, a uid, or uid:gid of the sandbox.")] = None,
    timeout: Annotated[float | None, Parameter(help="Seconds, then it is killed and the exit code is 124.")] = None,
    session: Annotated[str | None, Parameter(help="A session whose directory and variables last.")] = None,
    stdin: Annotated[bool, Parameter(help="Pass this process's stdin on, unless it is a terminal.")] = True,
    flags: Flags = DEFAULTS,
) -> int:
    """Run a command in a sandbox: kennel exec NAME -- ARGV…

    No shell is involved: for one, say `kennel exec NAME -- bash -c 'TEXT'`. The exit code is the command's own.
    """
    if not argv:
        raise misuse("there is no command to run", hint="kennel exec NAME -- uname -a")
    variables = pairs(env, "--env") or None
    given = _given() if stdin else b""
    with flags.client() as itx:
        from kennel.sdk.execution import output_bytes

        result = itx.sandboxes.get(name).exec(
            _shell_text(argv) if session else None,
            argv=None if session else argv,
            cwd=cwd,
            env=variables,
            stdin=given or None,
            timeout=timeout,
            user=user,
            session_id=session,
            encoding="utf8" if flags.json else "base64",
        )
    if flags.json:
        show_json(result)
        return result.exit_code
    for stream, text in ((sys.stdout, result.stdout), (sys.stderr, result.stderr)):
        stream.buffer.write(output_bytes(text, result.encoding))
        stream.flush()
    if result.truncated:
        warn(f"output was cut: the command wrote {result.stdout_bytes} and {result.stderr_bytes} bytes")
    return result.exit_code


def _shell_text(argv: tuple[str, ...]) -> str:
    """One line of shell that runs these words; a session is a shell and takes nothing else."""
    import shlex

    return shlex.join(argv)


def _given() -> bytes:
    """All of stdin, unless a person is sitting at it; BODY_TOO_LARGE past MAX_STDIN."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return b""
    data = sys.stdin.buffer.read(MAX_STDIN + 1)
    if len(data) > MAX_STDIN:
        hint = "write it to a file in the sandbox first"
        raise error("BODY_TOO_LARGE", f"stdin is over {MAX_STDIN} bytes", hint=hint, admitted="no")
    return data
