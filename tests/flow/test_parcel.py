"""A sandbox's files as one file: out of one installation, into another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from inside import look, run
from installation import Installation
from kennel import Kennel, KennelError

pytestmark = pytest.mark.root

TREE = r"""
mkdir -p deep/er 'odd name' empty; chmod 2750 deep; chmod 1777 empty
echo one > deep/one; chmod 4711 deep/one; ln deep/one deep/er/hard; chown 1000:33 deep/er
ln -s ../nowhere deep/dangling; ln -s /etc/passwd absolute; mkfifo deep/fifo
printf x > "$(printf 'new\nline')"; printf y > "$(printf 'raw\377\376')"; printf z > "$(printf '%0200d' 7)"
long=$(printf 'd%.0s' $(seq 90)); mkdir -p $long/$long/$long; echo far > $long/$long/$long/file
truncate -s 3M sparse; printf end >> sparse; head -c 3000000 /dev/urandom > big; : > nothing
python3 - <<'E'
import os
os.setxattr('deep/one', 'user.kind', b'\x00raw\xff'); os.setxattr('empty', 'user.a', b'1')
for number, path in enumerate(('deep/one', 'big', 'nothing', 'empty', 'deep/er', 'deep')):
    os.utime(path, ns=(1, 1_000_000_000_123_456_789 + number))
E
touch -h -d '2001-02-03 04:05:06.123456789' absolute
"""


@pytest.mark.full
def test_a_tree_is_the_same_on_another_installation(
    itx: Kennel, installation: Installation, own_installation: Installation, tmp_path: Path
) -> None:
    box = itx.sandboxes.get("/sandboxes/parcel").create()
    run(box, TREE)
    before = look(box)
    done = installation.cli("sandbox", "export", "parcel", "-o", str(tmp_path / "tree.tar.zst"), "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["bytes"] == (tmp_path / "tree.tar.zst").stat().st_size > 3_000_000
    # As it was, though it changed meanwhile; by stdout and stdin.
    run(box, "rm -rf deep big")
    words = ["sandbox", "export", "parcel", "--snapshot", said["snapshot"]]
    piped = installation.cli(*words)
    assert piped.returncode == 0, piped.stderr
    there = own_installation.cli("sandbox", "import", "arrived", str(tmp_path / "tree.tar.zst"), "--type", "lite")
    assert there.returncode == 0, there.stderr
    assert there.stdout.split()[-3:] == [b"/sandboxes/arrived", b"running", b"lite"]
    again = own_installation.cli("sandbox", "import", "piped", "-", "--json", stdin=piped.stdout)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["bytes"] == len(piped.stdout)
    with own_installation.client() as other:
        for name in ("arrived", "piped"):
            after = look(other.sandboxes.get(name))
            assert {path: row for path, row in after.items() if before.get(path) != row} == {}
            assert after.keys() == before.keys()
        arrived = other.sandboxes.get("arrived")
        assert run(arrived, "[ deep/one -ef deep/er/hard ] && stat -c %h deep/one") == "2\n"
        with pytest.raises(KennelError) as caught:
            other.sandboxes.import_("/sandboxes/arrived", piped.stdout)
        assert caught.value.code == "SANDBOX_EXISTS"
        with pytest.raises(KennelError) as damaged:
            other.sandboxes.import_("/sandboxes/damaged", piped.stdout[:-100])
        assert damaged.value.code == "BLOB_CORRUPT"
    box.destroy()


def test_what_cannot_be_meant_is_refused_and_a_cut_export_leaves_no_file(
    itx: Kennel, installation: Installation, tmp_path: Path
) -> None:
    done = installation.cli("sandbox", "export", "parcel-none", "--json")
    assert (done.returncode, b"--output" in done.stderr) == (2, True)
    target = tmp_path / "none"
    done = installation.cli("sandbox", "export", "parcel-none", "-o", str(target))
    assert b"SANDBOX_NOT_FOUND" in done.stderr
    box = itx.sandboxes.get("/sandboxes/parcel-cut").create()
    run(box, "echo 1 > one")
    done = installation.cli("sandbox", "export", "parcel-cut", "--snapshot", "bk0", "-o", str(target))
    assert b"SNAPSHOT_NOT_FOUND" in done.stderr
    assert list(tmp_path.iterdir()) == []
    box.destroy()


@pytest.mark.full
def test_two_gigabytes_pass_in_bounded_memory(itx: Kennel, installation: Installation, tmp_path: Path) -> None:
    box = itx.sandboxes.get("/sandboxes/parcel-big").create(instance_type="standard-1")
    run(box, "openssl enc -aes-128-ctr -nosalt -K 00 -iv 00 < /dev/zero 2>/dev/null | head -c 1000000000 > big; "
             "cp big too")  # fmt: skip
    expected = run(box, "sha256sum big too")
    # Not ru_maxrss: it begins with what the process had that started this one.
    code = "import re, sys; from kennel.cli.__main__ import run; code = run(sys.argv[1:]); "
    code += "print(code, re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr)"
    words = {"KENNEL_URL": installation.url, "KENNEL_API_KEY": installation.key, "PATH": "/usr/bin:/bin"}
    for command in (
        ["sandbox", "export", "parcel-big", "-o", str(tmp_path / "f")],
        ["sandbox", "import", "parcel-back", str(tmp_path / "f"), "--type", "standard-1"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *command], env=words, capture_output=True, timeout=500, check=True
        )
        status, peak = map(int, done.stderr.split()[-2:])
        assert status == 0, done.stderr
        assert peak * 1024 < 200 << 20
    back = itx.sandboxes.get("parcel-back")
    assert run(back, "sha256sum big too") == expected
    for each in (box, back):
        each.destroy()
