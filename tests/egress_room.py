"""Owns a place where unmodified programs run as a sandbox's would: its network, its resolver, the gateway's authority.

Used by tests of clients. Invariant: the program's only way out is the gateway under test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from egress_gateway import Sandbox

VALUE = "value-of-the-secret"


class Room:
    """Runs programs where a sandbox's processes would: its network, its resolver, the gateway's authority."""

    def __init__(self, box: Sandbox, folder: Path) -> None:
        self.box, self.folder = box, folder
        (folder / "resolv.conf").write_text("nameserver 198.18.0.1\n")
        self.roots = folder / "roots.pem"
        self.roots.write_text(box.gateway.control.facts["authority"])

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
        script = f'mount --bind {self.folder}/resolv.conf /etc/resolv.conf && exec "$@"'
        entered = ["nsenter", f"--net={self.box.handle}", "unshare", "-m", "sh", "-c", script, "sh", *words]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8", **variables}
        return subprocess.run(entered, capture_output=True, timeout=60, env=environment, cwd=self.folder, check=False)


def need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"no {program} here")
