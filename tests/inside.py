"""Owns looking at a sandbox from inside it: its tree, what a command printed.

Used by the tests of sleeps and of exports. Invariant: what is seen comes from the sandbox's own eyes, name by name.
"""

from __future__ import annotations

import json
from typing import Any

_LOOK = r"""
import base64, hashlib, json, os, stat
root, rows = b"/workspace", {}
for folder, folders, files in os.walk(root):
    for name in [b"."] + folders + files:
        path = os.path.normpath(os.path.join(folder, name))
        info = os.lstat(path)
        if stat.S_ISDIR(info.st_mode) and path in rows:
            continue
        attributes = {a: base64.b64encode(os.getxattr(path, a, follow_symlinks=False)).decode()
                      for a in os.listxattr(path, follow_symlinks=False) if a.startswith("user.")}
        body = None
        if stat.S_ISREG(info.st_mode):
            body = hashlib.sha256(open(path, "rb").read()).hexdigest()
        elif stat.S_ISLNK(info.st_mode):
            body = base64.b64encode(os.readlink(path)).decode()
        rows[base64.b64encode(os.path.relpath(path, root)).decode()] = [
            info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns, body, attributes]
print(json.dumps(rows, sort_keys=True))
"""


def look(box: Any) -> dict[str, Any]:
    """Everything that can be seen of /workspace, from inside."""
    result = box.exec(argv=["python3", "-c", _LOOK], cwd="/")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def run(box: Any, script: str) -> str:
    result = box.exec(script)
    assert result.exit_code == 0, result.stderr
    return str(result.stdout)
