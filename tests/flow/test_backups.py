"""Backups of directories: made inside, kept in the store, put back whole or not at all."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from installation import Installation
from kennel import Kennel, KennelError

pytestmark = pytest.mark.root

_TREE = r"""
mkdir -p /home/t/d /home/t/node_modules && cd /home/t && echo one > d/one && ln d/one hard && ln -s /etc/passwd link
printf x > "$(printf 'odd\n\377')"; echo tmp > a.tmp; echo m > node_modules/m
chown 1000:7 d/one; chmod 4750 d/one; chmod 1777 d; touch -d '2001-02-03 04:05:06.123456789' hard d; chmod 711 .
python3 -c "import os; os.setxattr('hard', 'user.k', bytes([255, 0, 10]))"
"""
_LOOK = r"""
import base64, json, os, sys
rows = {}
for folder, folders, files in os.walk(sys.argv[1]):
    for name in [b"."] + [os.fsencode(n) for n in folders + files]:
        path = os.path.normpath(os.path.join(os.fsencode(folder), name))
        info = os.lstat(path)
        body = os.readlink(path) if os.path.islink(path) else open(path, "rb").read() if os.path.isfile(path) else b""
        marks = {} if os.path.islink(path) else {a: os.getxattr(path, a).hex() for a in os.listxattr(path) if a[:5] == "user."}
        key = os.path.relpath(path, os.fsencode(sys.argv[1])).hex()
        rows[key] = [info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns, info.st_nlink * (body != b""), body.hex(), marks]
print(json.dumps(rows, sort_keys=True))
"""  # noqa: E501


def run(box: Any, script: str) -> str:
    result = box.exec(script)
    assert result.exit_code == 0, result.stderr
    return str(result.stdout)


def look(box: Any, top: str) -> dict[str, Any]:
    result = box.exec(argv=["python3", "-c", _LOOK, top], cwd="/")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def blobs(installation: Installation) -> list[str]:
    folder = installation.data / "control" / "blobs" / "backups"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_directory_comes_back_as_it_was(itx: Kennel, installation: Installation) -> None:
    box = itx.sandboxes.get("/sandboxes/saved").create(leave_out={"node_modules": False})
    run(box, _TREE)
    before = look(box, "/home/t")
    made = box.create_backup("/home/t/", name="home", excludes=["*.tmp"])
    assert (made.dir, made.name, made.left_out, made.expires_at) == ("/home/t", "home", 1, None)
    assert blobs(installation) == [made.id]
    run(box, "rm -rf /home/t/d; echo new > /home/t/new; chmod 700 /home/t")
    assert box.restore_backup(made).dir == "/home/t"
    kept = {name: row for name, row in before.items() if name != b"a.tmp".hex()}
    # Excluding a name changed nothing else, the directory's own times and modes included.
    assert look(box, "/home/t") == kept
    box.sleep()
    done = box.restore_backup(made.id, dir="/tmp")
    assert (done.success, done.dir, done.id) == (True, "/tmp", made.id)
    assert run(box, "ls -A /tmp | wc -l; cat /tmp/d/one") == "6\none\n"
    listed = installation.cli("sandbox", "backups", box.name, "--json")
    assert [each["id"] for each in json.loads(listed.stdout)] == [made.id]
    box.delete_backup(made)
    assert (box.list_backups(), blobs(installation)) == ([], [])
    with pytest.raises(KennelError) as caught:
        box.restore_backup(made)
    assert caught.value.code == "BACKUP_NOT_FOUND"
    box.destroy()


def test_a_backup_of_the_workspace_is_a_snapshot(itx: Kennel, installation: Installation) -> None:
    box = itx.sandboxes.get("/sandboxes/saved-workspace").create()
    run(box, "echo 1 > one")
    made = box.create_backup(name="n", ttl=3600)
    assert made.expires_at is not None
    assert [each.id for each in box.snapshots()] == [made.id]
    run(box, "echo 2 > one; touch two")
    box.restore_backup(made, dir="/home/copy")
    assert run(box, "cat /home/copy/one; ls /home/copy") == "1\none\n"
    assert box.restore_backup(made).dir == "/workspace"
    assert run(box, "cat one; ls") == "1\none\n"
    box.delete_backup(made)
    assert box.list_backups() == []
    box.destroy()


def test_what_cannot_be_saved_or_put_back_is_refused_and_leaves_nothing(
    itx: Kennel, installation: Installation
) -> None:
    box = itx.sandboxes.get("/sandboxes/saved-badly").create()
    before = blobs(installation)
    for where in ("/etc", "/workspace/../etc", "/", "home/t", "/homes", "/home/\n\0"):
        with pytest.raises(KennelError) as caught:
            box.create_backup(where)
        assert caught.value.code in ("INVALID_BACKUP_CONFIG", "VALIDATION_FAILED"), where
    run(box, "mkdir -p /home/t; truncate -s 100G /home/t/vast; echo f > /home/file")
    for where, code in (
        ("/home/t", "PACK_TOO_LARGE"),
        ("/home/none", "FILE_NOT_FOUND"),
        ("/home/file", "NOT_DIRECTORY"),
    ):
        with pytest.raises(KennelError) as caught:
            box.create_backup(where)
        assert caught.value.code == code
    deadline = time.monotonic() + 10
    while blobs(installation) != before:
        assert time.monotonic() < deadline, "what was cut off is still in the store"
        time.sleep(0.02)
    run(box, "rm /home/t/vast; echo 1 > /home/t/one")
    made = box.create_backup("/home/t", ttl=1)
    run(box, "echo 2 > /home/t/one")
    time.sleep(1.1)
    with pytest.raises(KennelError) as caught:
        box.restore_backup(made)
    assert caught.value.code == "BACKUP_EXPIRED"
    kept = box.create_backup("/home/t")
    path = installation.data / "control" / "blobs" / "backups" / kept.id
    path.write_bytes(path.read_bytes()[:-20])
    run(box, "echo 3 > /home/t/one")
    with pytest.raises(KennelError) as caught:
        box.restore_backup(kept)
    assert caught.value.code == "BLOB_CORRUPT"
    assert run(box, "cat /home/t/one; ls -A /home/t") == "3\none\n"
    path.unlink()
    with pytest.raises(KennelError) as caught:
        box.restore_backup(kept)
    assert caught.value.code == "BACKUP_NOT_FOUND"
    assert run(box, "ls -A /home/t") == "one\n"
    box.destroy()
