"""`up --no-node` as somebody who is not root: everything but sandboxes, and nothing of it left afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import kennel
from kennel import Kennel, KennelError

NOBODY = 65534
PYTHON = Path("/usr/bin/python3")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A folder of nobody's, with an environment on the system's interpreter: root's own may lie in a closed home."""
    if os.geteuid() != 0:
        pytest.skip("becomes another user")
    version = subprocess.run([PYTHON, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True)
    if version.stdout.strip() != str(sys.version_info[:2]):
        pytest.skip(f"{PYTHON} is not the version that the packages here are for")
    folder = Path(tempfile.mkdtemp(prefix="kennel-nobody-", dir="/var/tmp"))
    try:
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        site = folder / "venv/lib" / f"python3.{sys.version_info.minor}" / "site-packages/kennel.pth"
        site.write_text(f"{Path(kennel.__file__).parent.parent}\n{sysconfig.get_path('purelib')}\n")
        os.chown(folder, NOBODY, NOBODY)
        yield folder
    finally:
        shutil.rmtree(folder)


def run(home: Path, command: str, *words: str) -> subprocess.CompletedProcess[str]:
    module = [home / "venv/bin/python", "-P", "-m", f"kennel.installation.{command}", "--data", home / "data", *words]
    return subprocess.run(
        module, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False,
        user=NOBODY, group=NOBODY, extra_groups=[], env={"PATH": "/usr/bin:/bin", "HOME": str(home)}, cwd="/",
    )  # fmt: skip


def processes(home: Path) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(home) in words:
            found.append(words)
    return found


def test_another_user_than_root_is_told_what_works(home: Path) -> None:
    done = run(home, "up", "--detach")
    assert (done.returncode, done.stdout) == (1, "")
    assert "as root" in done.stderr
    assert "--no-node" in done.stderr
    assert not (home / "data").exists()


def test_everything_but_sandboxes(home: Path) -> None:
    up = run(home, "up", "--no-node", "--detach", "--json", "--port", "0")
    assert up.returncode == 0, up.stderr
    try:
        key = (home / "data/admin.key").read_text().strip()
        with Kennel(url=json.loads(up.stdout)["url"], api_key=key) as itx:
            stream = itx.streams.get("/notes")
            stream.append({"type": "note/taken", "payload": {"text": "kept"}})
            assert [event.payload for event in stream.read(types="note/taken")] == [{"text": "kept"}]
            with pytest.raises(KennelError) as refused:
                itx.sandboxes.get("/sandboxes/none").create()
            assert (refused.value.code, refused.value.admitted) == ("NODE_UNAVAILABLE", "no")
            assert refused.value.message == "sandboxes are not enabled here"
            assert "--no-node" in str(refused.value.hint)
            assert itx.sandboxes.list() == []
    finally:
        down = run(home, "down")
    assert down.returncode == 0, down.stderr
    assert processes(home) == []
