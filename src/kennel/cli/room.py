"""Owns `kennel room …`: commands and talk in a room, watching it, who is in it, and its cleaning up.

Called by `__main__`. Invariant: a command's output is written as it came and its exit code is the command's; words of a
model or a person cannot move the cursor.
"""

from __future__ import annotations

import re
import secrets
import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import App, Parameter

from kennel.cli.flags import DEFAULTS, Flags, Words, misuse, pairs
from kennel.cli.output import plain, printable, show_fields, show_json, show_table, warn

if TYPE_CHECKING:
    from kennel import Kennel
    from kennel.sdk.room_records import JoinLink, NewJoinLink, RoomMoment

app = App(name="room", help="Run commands and talk in a room, watch it, invite others; clean it up.")

User = Annotated[str | None, Parameter(help="Who is speaking.", show_default=False)]
Switch = Parameter(negative=(), show_default=False)


@app.command(name=("exec", "run"))
def execute(room_id: str, cmd: str, /, *, user: User = None, flags: Flags = DEFAULTS) -> int:
    """Run a shell command in a room, where directory and variables last."""
    with flags.client() as itx:
        result = itx.rooms.get(room_id).exec(cmd, user_id=user)
    if flags.json:
        show_json(result)
        return result.exit_code
    for stream, text in ((sys.stdout, result.stdout), (sys.stderr, result.stderr)):
        stream.buffer.write(text.encode())
        stream.flush()
    return result.exit_code


@app.command(name=("message", "send"))
def message(room_id: str, text: str, /, *, user: User = None, flags: Flags = DEFAULTS) -> None:
    """Say something to the room's model and print its reply."""
    with flags.client() as itx:
        reply = itx.rooms.get(room_id).send(text, user_id=user)
    if flags.json:
        show_json(reply)
    else:
        print(printable(reply.reply, keep="\n\t"))


@app.command
def create(
    room_id: Annotated[str | None, Parameter(help="Its id; else a code that nobody guesses.")] = None,
    /,
    *,
    title: Annotated[str | None, Parameter(help="What it is called.", show_default=False)] = None,
    flags: Flags = DEFAULTS,
) -> None:
    """Open a room and print its id. Its sandbox is made by its first command."""
    code = room_id or f"room-{secrets.token_hex(8)}"
    with flags.client() as itx:
        made = itx.rooms.get(code).set_title(title) if title is not None else itx.rooms.get(code).set()
    if flags.json:
        show_json(made)
    else:
        print(printable(made.room_id))


@app.command(name="set")
def set_(
    room_id: str,
    /,
    *,
    title: Annotated[str | None, Parameter(help="Its title; '' takes it away.", show_default=False)] = None,
    setting: Annotated[Words, Parameter(help="A setting, such as maxRounds=3; an empty value takes it back.")] = (),
    flags: Flags = DEFAULTS,
) -> None:
    """Change a room's title and settings.

    Settings: history, context, maxRounds, instructions, turnsPerMinute, commandsPerMinute.
    """
    if title is None and not setting:
        raise misuse("give --title or --setting NAME=VALUE")
    wanted = {_snake(name): _setting(name, value) for name, value in pairs(setting, "--setting").items()}
    with flags.client() as itx:
        room = itx.rooms.get(room_id)
        if wanted:
            try:
                view = room.set(**wanted)
            except TypeError as unknown:
                raise misuse(str(unknown)) from None
        if title is not None:
            view = room.set_title(title or None)
    if flags.json:
        show_json(view)
    else:
        show_fields(view)


def _snake(name: str) -> str:
    """`maxRounds` as the SDK names it."""
    return re.sub("([A-Z])", lambda letter: f"_{letter[1].lower()}", name)


def _setting(name: str, value: str) -> str | int | None:
    if not value:
        return None
    return int(value) if value.isascii() and value.isdigit() and name != "instructions" else value


@app.command(name="list")
def list_(*, flags: Flags = DEFAULTS) -> None:
    """List the rooms in use."""
    with flags.client() as itx:
        found = itx.rooms.list()
    if flags.json:
        show_json(found)
        return
    rows = [
        [room.room_id, plain(room.title), plain(room.sandbox), str(room.members), str(room.waiting), room.active_at]
        for room in found
    ]
    show_table(["ROOM", "TITLE", "SANDBOX", "MEMBERS", "WAITING", "ACTIVE"], rows)


@app.command
def show(room_id: str, /, *, flags: Flags = DEFAULTS) -> None:
    """Show a room and its latest messages."""
    with flags.client() as itx:
        talk = itx.rooms.get(room_id).info()
    if flags.json:
        show_json(talk)
        return
    for one in talk.messages:
        print(f"[{printable(one.user_id or one.role)}] {printable(one.text, keep=chr(10))}")


@app.command
def watch(
    room_id: str, /, *, after: Annotated[int, Parameter(help="Only events after this offset.")] = 0,
    flags: Flags = DEFAULTS,
) -> None:  # fmt: skip
    """Show what happens in a room until Ctrl-C: messages, the model's answer as it comes, commands, who comes and goes.

    With --json, one moment a line.
    """
    with flags.client() as itx, itx.rooms.get(room_id).events(after=after) as moments:
        for moment in moments:
            text = msgspec.json.encode(moment).decode() + "\n" if flags.json else told(moment)
            sys.stdout.write(text)
            sys.stdout.flush()


def told(moment: RoomMoment) -> str:
    """A moment as people read it; empty for what only programs care for."""
    payload = moment.payload
    match moment.kind:
        case "delta":
            return printable(str(payload.get("text", "\n" if payload.get("end") else "")), keep="\n\t")
        case "room/message-said":
            who = payload.get("userId") or payload.get("role")
            return _line(f"[{who}] {payload.get('text', '')}")
        case "room/command-started":
            return _line(f"$ {payload.get('command', '')}" + (" (waking)" if payload.get("waking") else ""))
        case "room/command-finished":
            return _line(str(payload.get("output") or payload.get("error") or ""))
        case "room/turn-ended":
            ended = f"({payload.get('outcome')}: {payload.get('error', '')})"
            return "" if payload.get("outcome") == "replied" else _line(ended)
        case "presence":
            return _line(f"({payload.get('userId')} is {'here' if payload.get('present') else 'gone'})")
        case "queue" | "command" | "room/turn-started":
            return ""
    return "" if moment.event is None or not moment.kind.startswith("room/") else _line(f"({moment.kind})")


def _line(text: str) -> str:
    return printable(text.rstrip("\n"), keep="\n\t") + "\n"


@app.command
def members(
    room_id: str,
    /,
    *,
    join: Annotated[str | None, Parameter(help="Join, or give a sign of life, as this person.")] = None,
    leave: Annotated[str | None, Parameter(help="End this person's membership.")] = None,
    role: Annotated[str | None, Parameter(help="driver or observer, with --join.")] = None,
    flags: Flags = DEFAULTS,
) -> None:
    """List who is in a room; --join and --leave change it first."""
    if role is not None and join is None:
        raise misuse("--role goes with --join")
    with flags.client() as itx:
        room = itx.rooms.get(room_id)
        if join is not None:
            room.join(join, role=role)
        if leave is not None:
            room.leave(leave)
        found = room.members()
    if flags.json:
        show_json(found)
        return
    rows = [[one.user_id, one.role, plain(one.present), one.joined_at] for one in found]
    show_table(["USER", "ROLE", "PRESENT", "JOINED"], rows)


@app.command(name=("link", "invite"))
def link(
    room_id: str,
    /,
    *,
    observer: Annotated[bool, Switch] = False,
    name: Annotated[str, Parameter(help="What it is for.")] = "",
    user: Annotated[str | None, Parameter(help="Who its holder is in the room.")] = None,
    expires_in: Annotated[int | None, Parameter(help="Seconds; else until it is revoked.")] = None,
    list_: Annotated[bool, Parameter(name="--list", negative=(), show_default=False)] = False,
    revoke: Annotated[str | None, Parameter(help="Revoke this link, or 'all', instead.")] = None,
    flags: Flags = DEFAULTS,
) -> None:
    """Make a join link: an address that opens this room alone in a browser; its token stands where a key would."""
    with flags.client() as itx:
        room = itx.rooms.get(room_id)
        if list_:
            _show_links(room.links(), flags)
        elif revoke is not None:
            revoked = room.revoke_links(None if revoke == "all" else revoke)
            if flags.json:
                show_json(revoked)
                return
            for one in revoked:
                print(f"{printable(one)} is revoked")
        else:
            role = "observer" if observer else "driver"
            made = room.create_link(role=role, name=name, user_id=user, expires_in=expires_in)
            _show_new(itx, made, flags)


def _show_new(itx: Kennel, made: NewJoinLink, flags: Flags) -> None:
    if flags.json:
        show_json(made)
        return
    show_fields(made.link)
    print(f"token (shown this once): {made.token}")
    print(f"in a browser: {itx.url}/console/join#{made.token}")


def _show_links(found: list[JoinLink], flags: Flags) -> None:
    if flags.json:
        show_json(found)
        return
    rows = [[one.id, one.role, plain(one.name), plain(one.user_id), plain(one.expires_at)] for one in found]
    show_table(["LINK", "ROLE", "NAME", "USER", "EXPIRES"], rows)


@app.command(name=("cleanup", "close"))
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
