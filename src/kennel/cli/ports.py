"""Owns `kennel sandbox expose | unexpose | ports`: which ports of a sandbox have a preview, and where.

Called by `sandbox`. Invariant: none of it wakes the sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from kennel.cli.flags import DEFAULTS, Flags, Name
from kennel.cli.output import plain, show_json, show_table

if TYPE_CHECKING:
    from kennel import PortInfo

COLUMNS = ("PORT", "NAME", "WAKES", "URL")


def expose(
    name: Name,
    port: int,
    /,
    *,
    title: Annotated[str | None, Parameter(help="What to call it.")] = None,
    wake: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Visitors wake the sandbox when it sleeps.")
    ] = False,
    flags: Flags = DEFAULTS,
) -> None:
    """Give a port an address that browsers can visit, and print it; the same one again until `unexpose`."""
    with flags.client() as itx:
        info = itx.sandboxes.get(name).expose_port(port, name=title, wake=wake)
    if flags.json:
        show_json(info)
    else:
        print(_address(info))


def unexpose(name: Name, port: int, /, *, flags: Flags = DEFAULTS) -> None:
    """Take a port's address away for good; visitors are cut off."""
    with flags.client() as itx:
        box = itx.sandboxes.get(name)
        box.unexpose_port(port)
    if flags.json:
        show_json({"path": box.path, "port": port, "exposed": False})
    else:
        print(f"port {port} of {box.path} has no preview")


def ports(name: Name, /, *, flags: Flags = DEFAULTS) -> None:
    """List the ports that have an address."""
    with flags.client() as itx:
        found: Sequence[PortInfo] = itx.sandboxes.get(name).get_exposed_ports()
    if flags.json:
        show_json(found)
        return
    rows = ((str(i.port), plain(i.name), "yes" if i.wake else "no", _address(i)) for i in found)
    show_table(COLUMNS, rows)


def _address(info: PortInfo) -> str:
    """The preview's, or the proxy's where no previews are served."""
    return info.url or info.proxy_path
