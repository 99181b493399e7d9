"""The stock image: what comes with it trusts the gateway without being told, package managers included."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flow.test_egress_packages import npm_site, pip_site, serve

from egress_installation import Walled, make_walled
from egress_world import answering, reply

pytestmark = [pytest.mark.root, pytest.mark.full, pytest.mark.timeout(1800)]

RECIPE = Path(__file__).parents[2] / "src/kennel/adapters/images"
URL = "https://trust.example.com/"


def stock_image() -> Path:
    """The folder that holds it: built once for a recipe (minutes, from Debian's and npm's registries), then kept."""
    recipe = b"".join((RECIPE / name).read_bytes() for name in ("stock.py", "skeleton.py", "build.py"))
    folder = Path("/var/tmp") / f"kennel-test-images-{hashlib.sha256(recipe).hexdigest()[:8]}"
    folder.mkdir(exist_ok=True)
    words = [sys.executable, "-P", "-m", "kennel.adapters.images.build", "stock", "--images-dir", str(folder)]
    done = subprocess.run([*words, "--if-missing"], capture_output=True, text=True, timeout=1500, check=False)
    if done.returncode != 0:
        pytest.skip(f"the stock image cannot be built here: {done.stderr[-300:]}")
    return folder


@pytest.fixture(scope="module")
def walled() -> Iterator[Walled]:
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("needs root and mmdebstrap")
    built = stock_image()
    for made in make_walled():
        for file in [*built.glob("*.erofs"), *built.glob("*.json")]:
            shutil.copy(file, made.data / "node/images" / file.name)
        made.ask(lambda itx: itx.sandboxes.get("box").create(image="stock"))
        yield made


@pytest.fixture(autouse=True)
def emptied(walled: Walled) -> Iterator[None]:
    yield
    walled.world.clear()
    assert walled.world.strayed() == {}


SPEAKING = {
    "curl": f"curl -sS {URL}",
    "wget": f"wget -q -O - {URL}",
    "python's own": f"python3 -c 'import urllib.request as u; print(u.urlopen(\"{URL}\").read().decode())'",
    "requests, as pip carries it": f"python3 -c 'import pip._vendor.requests as r; print(r.get(\"{URL}\").text)'",
    "node": f"node --input-type=module -e 'console.log(await (await fetch(\"{URL}\")).text())'",
    "bun": f"bun -e 'console.log(await (await fetch(\"{URL}\")).text())'",
    "another user": f"sudo -u nobody --preserve-env=SSL_CERT_FILE curl -sS {URL}",
    "no variable at all": f"env -i PATH=$PATH curl -sS {URL}",
}


@pytest.mark.parametrize("program", SPEAKING)
def test_what_comes_with_the_image_trusts_the_gateway(walled: Walled, program: str) -> None:
    walled.world.site("trust.example.com", handler=answering(reply(b"ok")))
    assert walled.run(SPEAKING[program]).strip() == "ok"


def test_git_clones(walled: Walled, tmp_path: Path) -> None:
    script = "git init -q -b main . && git config user.name a && git config user.email a@b && echo hi > file"
    script += " && git add . && git commit -qm one && git update-server-info"
    subprocess.run(["sh", "-ec", script], check=True, cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)})
    files = {
        f"/toy/{p.relative_to(tmp_path / '.git')}": p.read_bytes()
        for p in (tmp_path / ".git").rglob("*")
        if p.is_file()
    }
    serve(walled, "git.example.com", files=files)
    assert walled.run("cd /tmp && git clone -q https://git.example.com/toy && cat toy/file") == "hi\n"


def test_pip_installs(walled: Walled) -> None:
    pip_site(walled, "pip.example.com")
    index = "--index-url https://pip.example.com/simple/ --disable-pip-version-check"
    index += " --target /tmp/got --root-user-action ignore"
    assert walled.run(f"pip install -q {index} pet-toy 2>&1; cat /tmp/got/pet_toy.py") == "SOUND = 'squeak'\n"


def test_npm_installs(walled: Walled) -> None:
    npm_site(walled, "npm.example.com")
    script = "mkdir -p /tmp/n && cd /tmp/n && echo '{}' > package.json"
    script += " && npm install --silent --no-audit --no-fund --registry https://npm.example.com/ pet-toy"
    assert walled.run(f"{script} && cat node_modules/pet-toy/index.js") == "exports.a = 1"


def test_apt_updates_and_installs(walled: Walled, tmp_path: Path) -> None:
    tree = tmp_path / "pet-toy"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "opt").mkdir()
    (tree / "opt/toy").write_text("squeak\n")
    control = "Package: pet-toy\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@b.example.com>\nDescription: a toy\n"
    (tree / "DEBIAN/control").write_text(control)
    subprocess.run(["dpkg-deb", "--build", str(tree), str(tmp_path / "toy.deb")], check=True, capture_output=True)
    package = (tmp_path / "toy.deb").read_bytes()
    listed = f"{control}Filename: ./toy.deb\nSize: {len(package)}\nSHA256: {hashlib.sha256(package).hexdigest()}\n"
    serve(walled, "deb.example.com", files={"/./Packages": listed.encode(), "/./toy.deb": package})
    script = (
        "rm -f /etc/apt/sources.list.d/*; echo 'deb [trusted=yes] https://deb.example.com/ ./' > /etc/apt/sources.list;"
        " apt-get -qq update && apt-get -qq install pet-toy > /dev/null; cat /opt/toy"
    )
    done = walled.ask(lambda itx: itx.sandboxes.get("box").exec(script, user="root", timeout=60))
    assert done.stdout == "squeak\n", done.stderr
