"""Owns the commands of this machine: `up`, `down`, `doctor`, `bench`, `image build` and `image rm`.

Called by the command line. Each becomes the server-side program of that name, because the command line itself knows
only the SDK. Invariant: options are passed on as they were given; nothing is decided here.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import Annotated, NoReturn

from cyclopts import Parameter

from kennel.wire.errors import error

Text = Annotated[str | None, Parameter(show_default=False)]
Switch = Annotated[bool, Parameter(negative=())]


def up(
    *,
    data: Text = None,
    port: Annotated[int | None, Parameter(show_default=False)] = None,
    preview_port: Annotated[int | None, Parameter(show_default=False)] = None,
    host: Text = None,
    detach: Switch = False,
    open: Switch = False,
    no_node: Switch = False,
    json: Switch = False,
) -> NoReturn:
    """Start control, node and gateway on this machine, and keep them running.

    Parameters
    ----------
    data: where everything is kept (default /var/lib/kennel).
    port: port of the API (default 8787).
    preview_port: port of previews (default: the API's plus one).
    host: address of the API (default 127.0.0.1).
    detach: return as soon as the API answers.
    open: ask for no keys; binds loopback only.
    no_node: everything but sandboxes.
    json: print one JSON object.
    """
    values = {"--data": data, "--port": port, "--preview-port": preview_port, "--host": host}
    switches = {"--detach": detach, "--open": open, "--no-node": no_node, "--json": json}
    _become("kennel.installation.up", values, switches)


def down(*, data: Text = None, json: Switch = False) -> NoReturn:
    """Put the pets to sleep and stop everything.

    Parameters
    ----------
    data: the installation to stop (default /var/lib/kennel).
    json: print one JSON object.
    """
    _become("kennel.installation.down", {"--data": data}, {"--json": json})


def doctor(*, data: Text = None, json: Switch = False) -> NoReturn:
    """Look at this machine: what works, what is missing, and how to get it.

    Parameters
    ----------
    data: the installation to look at (default /var/lib/kennel).
    json: print JSON.
    """
    _become("kennel.installation.doctor", {"--data": data}, {"--json": json})


def bench(name: str | None = None, /, *, data: Text = None, json: Switch = False) -> NoReturn:
    """Measure a running installation beside floors of the same run.

    Parameters
    ----------
    name: `tti`, `exec` or `log`; without a name all of them.
    data: the installation to measure (default: one made for the run).
    json: print JSON.
    """
    _become("kennel.installation.bench", {"": name, "--data": data}, {"--json": json})


def image_build(name: str = "stock", /, *, data: Text = None) -> NoReturn:
    """Build an image on this machine (some minutes, as root).

    Parameters
    ----------
    name: which image; `stock` is Debian with python3, Node 20, Bun, git and what a workspace needs.
    data: the installation to build it for (default /var/lib/kennel).
    """
    _become("kennel.installation.images", {"": "build", " ": name, "--data": data}, {})


def image_remove(name: str, /, *, data: Text = None) -> NoReturn:
    """Remove an image that no sandbox uses.

    Parameters
    ----------
    name: the image's name or digest.
    data: the installation it is in (default /var/lib/kennel).
    """
    _become("kennel.installation.images", {"": "rm", " ": name, "--data": data}, {})


def _become(module: str, values: Mapping[str, object], switches: dict[str, bool]) -> NoReturn:
    if importlib.util.find_spec(module.rpartition(".")[0]) is None or importlib.util.find_spec("fastapi") is None:
        raise error("NOT_SUPPORTED", "only the client is installed here", hint="pip install 'kennel[server]'")
    words = [sys.executable, "-P", "-m", module]
    for flag, value in values.items():
        if value is not None:
            words += [str(value)] if not flag.strip() else [flag, str(value)]
    words += [flag for flag, on in switches.items() if on]
    sys.stdout.flush()
    os.execv(words[0], words)
