"""A sandbox of the shared installation, attacked through the public API as its user would."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from walls import Ran


class Pet:
    """One sandbox; `sandbox` is the SDK's."""

    def __init__(self, sandbox: Any, data: Path) -> None:
        self.sandbox = sandbox
        self.hidden = (f"{data}/node/sandboxes", f"{data}/node/images", f"{data}/control")
        self.first_id = int(self.run(["cat", "/proc/self/uid_map"]).out.split()[1])

    def run(self, argv: Sequence[str], *, cwd: str = "/", uid: int = 0, stdin: bytes = b"", timeout: float = 60) -> Ran:
        done = self.sandbox.exec(argv=list(argv), cwd=cwd, user=str(uid), stdin=stdin, timeout=timeout)
        return Ran(done.exit_code, done.stdout, done.stderr)

    def put(self, name: str, content: bytes, mode: int = 0o755) -> None:
        script = 'cat > "$1" && chmod "$2" "$1"'
        done = self.run(["sh", "-c", script, "put", name, f"{mode:o}"], stdin=content)
        assert done.code == 0, done.err
