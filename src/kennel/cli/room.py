"""Owns `kennel room …`: commands and talk in a room, and its cleaning up.

Called by `__main__`. Invariant: a room's output is written as it came; its exit code is the command's.
"""

from __future__ import annotations

import sys

from cyclopts import App

from kennel.cli.flags import DEFAULTS, Flags
from kennel.cli.output import printable, show_json, warn

app = App(name="room", help="Run commands and talk in a room; clean it up.")


@app.command(name="exec")
def execute(room_id: str, cmd: str, /, *, flags: Flags = DEFAULTS) -> int:
    """Run a shell command in a room, where directory and variables last."""
    with flags.client() as itx:
        result = itx.rooms.get(room_id).exec(cmd)
    if flags.json:
        show_json(result)
        return result.exit_code
    for stream, text in ((sys.stdout, result.stdout), (sys.stderr, result.stderr)):
        stream.buffer.write(text.encode())
        stream.flush()
    return result.exit_code


@app.command
def message(room_id: str, text: str, /, *, user: str | None = None, flags: Flags = DEFAULTS) -> None:
    """Say something to the room's model and print its reply."""
    with flags.client() as itx:
        reply = itx.rooms.get(room_id).send(text, user_id=user)
    if flags.json:
        show_json(reply)
    else:
        print(printable(reply.reply, keep="\n\t"))


@app.command
def cleanup(room_id: str, /, *, flags: Flags = DEFAULTS) -> int:
    """Empty a room and destroy its sandbox; the same id begins afresh."""
    with flags.client() as itx:
        outcome = itx.rooms.get(room_id).cleanup()
    if flags.json:
        show_json(outcome)
    elif not outcome.errors:
        print(f"room {printable(room_id)} is cleaned up")
    for problem in outcome.errors:
        warn(problem)
    return 1 if outcome.errors else 0
