"""Owns `kennel sandbox mount | unmount | mounts`: buckets of an object store in a sandbox.

Called by `sandbox`. Invariant: credentials come from the environment, never from the command line, which others on the
machine can read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from kennel.cli.flags import DEFAULTS, Flags, Name, Words
from kennel.cli.output import show_json, show_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kennel import MountView

COLUMNS = ("PATH", "BUCKET", "PREFIX", "ACCESS", "ALIVE", "ENDPOINT")


def mount(
    name: Name,
    bucket: str,
    path: str,
    /,
    *,
    endpoint: Annotated[str, Parameter(help="The store's URL.")],
    prefix: Annotated[str | None, Parameter(help="Only what is below this in the bucket.")] = None,
    read_only: Annotated[bool, Parameter(negative=(), show_default=False, help="Refuse every write.")] = False,
    option: Annotated[Words, Parameter(help="An option of s3fs, as NAME or NAME=VALUE; again for more.")] = (),
    flags: Flags = DEFAULTS,
) -> None:
    """Mount a bucket below /workspace. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are taken from the environment."""
    with flags.client() as itx:
        made = itx.sandboxes.get(name).mount_bucket(
            bucket, path, endpoint=endpoint, prefix=prefix, read_only=read_only, s3fs_options=option
        )
    _list([made], flags)


def unmount(
    name: Name,
    path: str,
    /,
    *,
    force: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Also while it is in use; unwritten data is lost.")
    ] = False,
    flags: Flags = DEFAULTS,
) -> None:
    """Unmount a bucket."""
    with flags.client() as itx:
        box = itx.sandboxes.get(name)
        box.unmount_bucket(path, force=force)
    if flags.json:
        show_json({"path": box.path, "mountPath": path, "mounted": False})
    else:
        print(f"nothing is mounted at {path} of {box.path}")


def mounts(name: Name, /, *, flags: Flags = DEFAULTS) -> None:
    """List the buckets that are mounted; does not wake it."""
    with flags.client() as itx:
        _list(itx.sandboxes.get(name).list_mounts(), flags)


def _list(found: Sequence[MountView], flags: Flags) -> None:
    if flags.json:
        show_json(found)
        return
    show_table(COLUMNS, (_row(view) for view in found))


def _row(view: MountView) -> tuple[str, ...]:
    access, alive = "read" if view.read_only else "write", "yes" if view.alive else "no"
    return view.mount_path, view.bucket, view.prefix or "", access, alive, view.endpoint
