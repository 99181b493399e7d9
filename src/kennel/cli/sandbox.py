"""Owns `kennel sandbox …`: a sandbox's life from the command line.

Called by `__main__`. Invariant: names are given as NAME or /sandboxes/NAME; nothing but `create` makes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from kennel.cli import mounts, parcel, ports
from kennel.cli.flags import DEFAULTS, Flags, Name, Words, pairs
from kennel.cli.going import going
from kennel.cli.output import advice_told, plain, show_fields, show_json, show_table

if TYPE_CHECKING:
    from kennel import BackupView, SandboxView, SnapshotView

app = App(name="sandbox", help="Create, list, start, put to sleep and destroy sandboxes.")
for command in (ports.expose, ports.unexpose, ports.ports, mounts.mount, mounts.unmount, mounts.mounts):
    app.command(command)

LeftOut = Annotated[Words, Parameter(help="A pattern of paths that backups leave out; again for more.")]
KeepModules = Annotated[bool, Parameter(negative=(), show_default=False, help="Back up node_modules too.")]
KeepIgnored = Annotated[bool, Parameter(negative=(), show_default=False, help="Back up what git ignores too.")]

COLUMNS = ("NAME", "STATUS", "TYPE", "IMAGE", "ISOLATION", "CREATED", "LABELS")


@app.command
def create(
    name: Name,
    /,
    *,
    type: Annotated[str | None, Parameter(help="lite, basic (the default), standard-1 … standard-4.")] = None,
    image: Annotated[str | None, Parameter(help="An image's name or digest; 'host' unless set otherwise.")] = None,
    isolation: Annotated[str | None, Parameter(help="container or gvisor.")] = None,
    env: Annotated[Words, Parameter(help="NAME=VALUE for every command; again for more.")] = (),
    sleep_after: Annotated[str | None, Parameter(help="Idle time before it sleeps: seconds, 90s, 10m, 1h.")] = None,
    keep_alive: Annotated[bool, Parameter(negative=(), show_default=False, help="Never sleep by itself.")] = False,
    label: Annotated[Words, Parameter(help="KEY=VALUE to find it by; again for more.")] = (),
    leave_out: LeftOut = (),
    keep_node_modules: KeepModules = False,
    keep_ignored: KeepIgnored = False,
    points: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Take a point before each command.")
    ] = False,
    request_id: Annotated[str | None, Parameter(help="Names this one creation, to repeat it safely.")] = None,
    flags: Flags = DEFAULTS,
) -> None:
    """Create a sandbox. An existing or destroyed name is an error."""
    seconds = int(sleep_after) if sleep_after and sleep_after.isdecimal() else sleep_after
    with flags.client() as itx, advice_told():
        box = itx.sandboxes.get(name).create(
            instance_type=type,
            image=image,
            isolation=isolation,
            env=pairs(env, "--env") or None,
            sleep_after=seconds,
            keep_alive=keep_alive or None,
            labels=pairs(label, "--label") or None,
            leave_out=_left_out(leave_out, keep_node_modules, keep_ignored) or None,
            points=points or None,
            request_id=request_id,
        )
        _report(box.info(), flags)


@app.command(name="set")
def set_(
    name: Name,
    /,
    *,
    sleep_after: Annotated[str | None, Parameter(help="Idle time before it sleeps: seconds, 90s, 10m, 1h.")] = None,
    keep_alive: Annotated[bool | None, Parameter(show_default=False, help="Whether it never sleeps by itself.")] = None,
    env: Annotated[Words, Parameter(help="NAME=VALUE for every command; again for more.")] = (),
    leave_out: LeftOut = (),
    keep_node_modules: KeepModules = False,
    keep_ignored: KeepIgnored = False,
    leave_out_default: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Leave out what a new sandbox does.")
    ] = False,
    points: Annotated[
        bool | None, Parameter(show_default=False, help="Whether to take a point before each command.")
    ] = None,
    flags: Flags = DEFAULTS,
) -> None:
    """Change a sandbox's settings; what is not named stays. Patterns replace those of before."""
    with flags.client() as itx, advice_told():
        box = itx.sandboxes.get(name)
        if env:
            box.set_env_vars(pairs(env, "--env"))
        if sleep_after is not None:
            box.set_sleep_after(int(sleep_after) if sleep_after.isdecimal() else sleep_after)
        if keep_alive is not None:
            box.set_keep_alive(keep_alive)
        if points is not None:
            box.set_points(points)
        words = _left_out(leave_out, keep_node_modules, keep_ignored)
        if words or leave_out_default:
            box.set_leave_out(words)
        _report(box.info(), flags)


def _left_out(patterns: Words, keep_node_modules: bool, keep_ignored: bool) -> dict[str, Any]:
    words = {
        "node_modules": False if keep_node_modules else None,
        "gitignore": False if keep_ignored else None,
        "patterns": list(patterns) or None,
    }
    return {word: value for word, value in words.items() if value is not None}


@app.command(name="list")
def list_(
    *,
    status: Annotated[str | None, Parameter(help="Only those with this status.")] = None,
    label: Annotated[str | None, Parameter(help="Only those with this KEY=VALUE.")] = None,
    destroyed: Annotated[bool, Parameter(negative=(), show_default=False, help="The destroyed ones too.")] = False,
    flags: Flags = DEFAULTS,
) -> None:
    """List the project's sandboxes; wakes none of them."""
    with flags.client() as itx:
        found = itx.sandboxes.list(status=status, label=label, include_destroyed=destroyed)
    if flags.json:
        show_json(found)
        return
    show_table(
        COLUMNS,
        (
            (v.name, v.status, v.instance_type, v.image, v.isolation, v.created_at, plain(_labels(v)))
            for v in found
        ),
    )  # fmt: skip


@app.command
def show(name: Name, /, *, flags: Flags = DEFAULTS) -> None:
    """Show one sandbox; does not wake it."""
    with flags.client() as itx:
        view = itx.sandboxes.get(name).info()
    if flags.json:
        show_json(view)
    else:
        show_fields(view)


@app.command
def start(name: Name, /, *, flags: Flags = DEFAULTS) -> None:
    """Boot a sandbox now rather than at its next command."""
    with flags.client() as itx:
        box = itx.sandboxes.get(name)
        with going(box):
            view = box.start()
        _report(view, flags)


@app.command
def sleep(name: Name, /, *, flags: Flags = DEFAULTS) -> None:
    """Put a sandbox to sleep: its files stay, its processes end."""
    with flags.client() as itx:
        box = itx.sandboxes.get(name)
        with going(box):
            view = box.sleep()
        _report(view, flags)


@app.command
def restart(name: Name, /, *, flags: Flags = DEFAULTS) -> None:
    """Stop a sandbox and boot it again."""
    with flags.client() as itx:
        _report(itx.sandboxes.get(name).restart(), flags)


@app.command
def kill(name: Name, /, *, flags: Flags = DEFAULTS) -> None:
    """End a sandbox at once, without waiting for anything in it."""
    with flags.client() as itx:
        _report(itx.sandboxes.get(name).kill(), flags)


@app.command
def destroy(name: Name, /, *, flags: Flags = DEFAULTS) -> None:
    """Destroy a sandbox for good; its name is retired."""
    with flags.client() as itx:
        box = itx.sandboxes.get(name)
        box.destroy()
    if flags.json:
        show_json({"path": box.path, "destroyed": True})
    else:
        print(f"{box.path} is destroyed")


@app.command
def fork(
    name: Name,
    new: Name,
    /,
    *,
    snapshot: Annotated[str | None, Parameter(help="The id of a snapshot; else as it is now.")] = None,
    type: Annotated[str | None, Parameter(help="Another instance type than its own.")] = None,
    secrets: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Copy variables that name secrets too.")
    ] = False,
    flags: Flags = DEFAULTS,
) -> None:
    """Make a new sandbox with this one's files and environment."""
    with flags.client() as itx:
        _report(itx.sandboxes.get(name).fork(new, snapshot, instance_type=type, secrets=secrets).info(), flags)


app.command(parcel.export, name="export")
app.command(parcel.import_, name="import")


@app.command
def snapshot(
    name: Name,
    title: Annotated[str | None, Parameter(help="What to call it.")] = None,
    /,
    *,
    ttl: Annotated[int | None, Parameter(help="Seconds until it goes; else it lasts until it is deleted.")] = None,
    flags: Flags = DEFAULTS,
) -> None:
    """Take a snapshot of a sandbox's files; it may run meanwhile."""
    with flags.client() as itx:
        box = itx.sandboxes.get(name)
        with going(box):
            made = box.snapshot(title, ttl=ttl)
        _list_snapshots([made], flags)


@app.command
def snapshots(name: Name, /, *, flags: Flags = DEFAULTS) -> None:
    """List a sandbox's snapshots, the newest first; does not wake it."""
    with flags.client() as itx:
        _list_snapshots(itx.sandboxes.get(name).snapshots(), flags)


@app.command
def rollback(
    name: Name,
    snapshot: Annotated[str | None, Parameter(help="The id of a snapshot.")] = None,
    /,
    *,
    before: Annotated[int | None, Parameter(help="The offset of a command: to what was there before it.")] = None,
    flags: Flags = DEFAULTS,
) -> None:
    """Make a sandbox's files those of a snapshot again; what runs in it ends."""
    with flags.client() as itx:
        box = itx.sandboxes.get(name)
        with going(box):
            view = box.rollback(snapshot, before=before)
        _report(view, flags)


@app.command
def backup(
    name: Name,
    dir: Annotated[str, Parameter(help="The directory.")] = "/workspace",
    /,
    *,
    title: Annotated[str | None, Parameter(help="What to call it.")] = None,
    ttl: Annotated[int | None, Parameter(help="Seconds until it goes; else it lasts until it is deleted.")] = None,
    exclude: Annotated[Words, Parameter(help="A pattern of paths to leave out; again for more.")] = (),
    flags: Flags = DEFAULTS,
) -> None:
    """Back up a directory of a sandbox."""
    with flags.client() as itx:
        made = itx.sandboxes.get(name).create_backup(dir, name=title, ttl=ttl, excludes=list(exclude) or None)
        _list_backups([made], flags)


@app.command
def backups(name: Name, /, *, flags: Flags = DEFAULTS) -> None:
    """List a sandbox's backups, the newest first; does not wake it."""
    with flags.client() as itx:
        _list_backups(itx.sandboxes.get(name).list_backups(), flags)


@app.command
def restore(
    name: Name,
    backup: str,
    /,
    *,
    dir: Annotated[str | None, Parameter(help="Where to, if not to where it came from.")] = None,
    flags: Flags = DEFAULTS,
) -> None:
    """Make a directory what a backup holds, and nothing else."""
    with flags.client() as itx:
        done = itx.sandboxes.get(name).restore_backup(backup, dir=dir)
    if flags.json:
        show_json(done)
    else:
        print(f"{done.dir} is what {done.id} holds")


def _list_backups(found: list[BackupView], flags: Flags) -> None:
    if flags.json:
        show_json(found)
        return
    rows = ((v.id, v.name or "", v.dir, v.created_at, str(v.size)) for v in found)
    show_table(("ID", "NAME", "DIRECTORY", "CREATED", "BYTES"), rows)


def _list_snapshots(found: list[SnapshotView], flags: Flags) -> None:
    if flags.json:
        show_json(found)
        return
    rows = ((v.id, v.name or "", v.reason, v.created_at, str(v.size)) for v in found)
    show_table(("ID", "NAME", "REASON", "CREATED", "BYTES"), rows)


def _report(view: SandboxView, flags: Flags) -> None:
    """What a verb left, on one line."""
    if flags.json:
        show_json(view)
    else:
        show_table(("PATH", "STATUS", "TYPE"), [(view.path, view.status, view.instance_type)])


def _labels(view: SandboxView) -> list[str]:
    return [f"{key}={value}" for key, value in view.labels.items()]
