"""Building the stock image: which sources it takes, what it refuses to unpack, and that a failure leaves nothing."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from kennel.adapters.images import apt_sources, build, stock
from kennel.adapters.images.pack import pack
from kennel.adapters.images.store import ImageInfo, ImageStore
from kennel.wire.errors import KennelError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="a build needs root")
needs_erofs = pytest.mark.skipif(shutil.which("mkfs.erofs") is None, reason="no erofs-utils")
DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_CODENAME=bookworm\n'


def machine(tmp_path: Path, files: dict[str, str], release: str = DEBIAN) -> Path:
    for name, text in {"usr/lib/os-release": release, **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


LISTED = """\
# deb http://commented.example/debian bookworm main
deb http://a.example/debian bookworm main contrib # a remark
deb-src http://a.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/k.gpg] http://b.example/debian bookworm-security main
deb http://other.example/apt stable main
deb http://a.example/debian trixie main
"""
STANZAS = """\
Types: deb deb-src
URIs: http://c.example/debian
# a remark
Suites: bookworm bookworm-updates sid
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc

Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Enabled: no

Types: deb-src
URIs: http://src.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://third.example/node_20.x
Suites: nodistro
Components: main
"""


def test_the_machines_own_debian_sources_are_taken_and_no_others(tmp_path: Path) -> None:
    found = apt_sources.of_machine(
        machine(
            tmp_path,
            {"etc/apt/sources.list": LISTED, "etc/apt/sources.list.d/debian.sources": STANZAS,
             "etc/apt/sources.list.d/off.sources.disabled": STANZAS.replace("c.example", "disabled.example")},
        )
    )  # fmt: skip
    assert found.codename == "bookworm"
    assert found.text.split("\n\n") == [
        "Types: deb\nURIs: http://a.example/debian\nSuites: bookworm\nComponents: main contrib",
        "Types: deb\nURIs: http://b.example/debian\nSuites: bookworm-security\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/k.gpg",
        "Types: deb\nURIs: http://c.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n"
        "Signed-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n",
    ]


def test_a_password_in_an_address_does_not_reach_the_image(tmp_path: Path) -> None:
    line = "deb https://me:pass@a.example/debian bookworm main\n"
    found = apt_sources.of_machine(machine(tmp_path, {"etc/apt/sources.list": line}))
    assert "me:pass@" in found.text
    assert "URIs: https://a.example/debian\n" in found.public_text


@pytest.mark.parametrize(
    ("files", "release"),
    [
        ({}, DEBIAN),
        ({"etc/apt/sources.list": "deb http://a.example/ubuntu jammy main\n"}, DEBIAN),
        ({"etc/apt/sources.list": LISTED}, "ID=ubuntu\nVERSION_CODENAME=jammy\n"),
        ({"etc/apt/sources.list": LISTED}, ""),
        ({"etc/apt/sources.list": LISTED}, 'ID=debian\nVERSION_CODENAME="../x"\n'),
    ],
)
def test_a_machine_without_usable_sources_is_told_so(tmp_path: Path, files: dict[str, str], release: str) -> None:
    with pytest.raises(KennelError) as caught:
        apt_sources.of_machine(machine(tmp_path, files, release))
    assert caught.value.code == "SANDBOX_BUILD_FAILED"
    assert caught.value.hint


def test_proxies_and_authorities_of_apt_are_passed_on_and_nothing_else() -> None:
    dump = """\
APT::Architecture "amd64";
Acquire::http::Proxy "http://127.0.0.1:3142";
Acquire::https::Proxy::a.example "DIRECT";
Acquire::https::CaInfo "/etc/ssl/own.pem";
Acquire::http::User-Agent "x";
Acquire::Languages "en";
DPkg::Pre-Invoke:: "rm -rf /";
"""
    assert apt_sources._fetching(dump) == tuple(dump.splitlines()[1:4])


def archive(tmp_path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    path = tmp_path / "x.tgz"
    with tarfile.open(path, "w:gz") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def member(name: str, mode: int = 0o644, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode, info.type, info.linkname, info.uid = mode, kind, link, 4242
    return info


def test_a_package_is_unpacked_without_its_folder_owner_or_odd_modes(tmp_path: Path) -> None:
    made = archive(
        tmp_path,
        (member("package/bin/node", 0o644), b"program"),
        (member("package/lib/a.js", 0o4755), b"x"),
        (member("package/README", 0o666), b"y"),
        (member("top", 0o644), b"z"),
    )
    target = tmp_path / "tree"
    stock._unpack(made, target)
    seen = {str(p.relative_to(target)): (p.stat().st_mode & 0o7777) for p in target.rglob("*") if p.is_file()}
    assert seen == {"bin/node": 0o755, "lib/a.js": 0o755, "README": 0o644}
    assert (target / "README").stat().st_uid == os.geteuid()


@pytest.mark.parametrize(
    "evil",
    [
        member("package/../../escaped"),
        member("package/link", kind=tarfile.SYMTYPE, link="../../../etc/passwd"),
        member("package/abs", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        member("package/hard", kind=tarfile.LNKTYPE, link="../../outside"),
        member("package/dev", kind=tarfile.CHRTYPE),
    ],
)
def test_a_hostile_package_is_refused(tmp_path: Path, evil: tarfile.TarInfo) -> None:
    made = archive(tmp_path, (evil, b""))
    with pytest.raises(KennelError, match="no package should") as caught:
        stock._unpack(made, tmp_path / "tree" / "deep")
    assert caught.value.code == "SANDBOX_BUILD_FAILED"
    assert not (tmp_path / "escaped").exists()


def tree(path: Path, when: int) -> Path:
    (path / "usr/bin").mkdir(parents=True)
    (path / "usr/bin/tool").write_text("#!/bin/sh\n")
    (path / "usr/bin/tool").chmod(0o755)
    (path / "bin").symlink_to("usr/bin")
    os.utime(path / "usr/bin/tool", (when, when))
    return path


@needs_erofs
def test_equal_trees_make_one_image_whatever_their_times(tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    made = []
    for number in (1, 2):
        aside = images / f".build-{number}"
        aside.mkdir()
        info = ImageInfo("stock", "", "erofs", architecture="x86_64", description="d")
        made.append(pack(tree(tmp_path / f"tree{number}", number * 1000), aside, images, info))
        shutil.rmtree(aside)
    assert made[0].digest == made[1].digest
    stem = made[0].digest.removeprefix("sha256:")
    assert {path.name for path in images.iterdir()} == {f"{stem}.erofs", f"{stem}.json"}
    assert (images / f"{stem}.erofs").stat().st_mode & 0o777 == 0o444
    assert ImageStore(images).info(made[0].digest) == made[1]
    assert json.loads((images / f"{stem}.json").read_text())["created"] >= made[0].created


@needs_erofs
def test_a_tree_that_cannot_be_packed_leaves_no_image(tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    with pytest.raises(KennelError) as caught:
        pack(tmp_path / "missing", aside, tmp_path, ImageInfo("stock", "", "erofs"))
    assert caught.value.code == "SANDBOX_BUILD_FAILED"
    assert not list(tmp_path.glob("*.erofs"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build whose tree is made at once and whose tools are all there."""
    monkeypatch.setattr(build, "NEEDED", ())
    monkeypatch.setattr(build, "SPACE", 0)
    monkeypatch.setattr(stock, "architecture", lambda: "amd64")
    monkeypatch.setattr(apt_sources, "of_machine", lambda: apt_sources.AptSources("bookworm", ""))
    monkeypatch.setattr(stock, "fill", lambda recipe: tree(recipe.tree, 5))


@as_root
@needs_erofs
@pytest.mark.usefixtures("quick")
def test_a_build_makes_the_image_and_removes_what_a_killed_one_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".build-dead/tree").mkdir(parents=True)
    done = build.build_stock(tmp_path)
    assert ImageStore(tmp_path).resolve("stock") == done.digest
    assert done.digest in capsys.readouterr().out
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".erofs", ".json", ".lock"]
    assert build.main(["stock", "--images-dir", str(tmp_path), "--if-missing"]) == 0
    assert "already" in capsys.readouterr().out


@as_root
@pytest.mark.usefixtures("quick")
def test_a_failed_build_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(recipe: stock.Recipe) -> None:
        tree(recipe.tree, 5)
        stock._run(["sh", "-c", "echo first; echo 'E: no such package' >&2; exit 100"], 10)

    monkeypatch.setattr(stock, "fill", fail)
    assert build.main(["stock", "--images-dir", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "sh ended with 100" in said
    assert "E: no such package" in said
    assert [path.name for path in tmp_path.iterdir()] == [".build.lock"]


@as_root
@pytest.mark.usefixtures("quick")
def test_two_builds_at_once_are_one_too_many(tmp_path: Path) -> None:
    with (tmp_path / ".build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(KennelError) as caught:
            build.build_stock(tmp_path)
    assert caught.value.code == "RESOURCE_BUSY"


@as_root
@pytest.mark.usefixtures("quick")
def test_what_can_be_known_beforehand_is_said_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "NEEDED", ("no-such-program",))
    with pytest.raises(KennelError, match="no-such-program") as missing:
        build.build_stock(tmp_path)
    assert missing.value.hint == stock.REMEDY
    monkeypatch.setattr(build, "NEEDED", ())
    monkeypatch.setattr(build, "SPACE", 1 << 60)
    with pytest.raises(KennelError) as small:
        build.build_stock(tmp_path)
    assert small.value.code == "NO_SPACE"


def test_a_program_that_hangs_is_ended() -> None:
    with pytest.raises(KennelError, match="more than 0"):
        stock._run(["sleep", "60"], 0.2)


@pytest.mark.full
@pytest.mark.root
@pytest.mark.timeout(3600)
@as_root
def test_the_stock_image_is_built_and_holds_what_it_promises(tmp_path: Path) -> None:
    if any(shutil.which(name) is None for name in build.NEEDED):
        pytest.skip(f"needs {stock.REMEDY}")
    words = [sys.executable, "-m", "kennel.adapters.images.build", "stock", "--images-dir", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    assert not list(tmp_path.glob(".build-*"))
    store = ImageStore(tmp_path)
    image = store.lower(store.resolve("stock")).root
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    look = (
        f"mount -t erofs -o ro {image} {mounted} && exec chroot {mounted} /bin/sh -ec"
        " 'node --version; bun --version; python3 --version; git --version; gh --version; jq --version; bash --version;"
        ' npm --version; su user -c "sudo -n id -u"; ls /usr/local/bin\''
    )
    seen = subprocess.run(["unshare", "--mount", "sh", "-c", look], capture_output=True, text=True, check=False)
    assert seen.returncode == 0, seen.stderr
    assert seen.stdout.startswith("v20.")
    assert "\n0\n" in seen.stdout
