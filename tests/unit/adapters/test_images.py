"""The images directory and the host image: what is copied from a machine, what never is, and what a digest follows."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from kennel.adapters.images import skeleton
from kennel.adapters.images.accounts import account_files
from kennel.adapters.images.host import HostImage
from kennel.adapters.images.store import ImageInfo, ImageStore
from kennel.wire.errors import KennelError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="owners are set, which only root may")
SECRET = "do-not-copy-me"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A small Debian-like root with secrets wherever a machine keeps them."""
    root = tmp_path / "machine"
    public = {
        "usr/lib/os-release": "ID=debian\n",
        "var/lib/dpkg/status": "Package: bash\nStatus: install ok installed\n",
        "var/lib/dpkg/info/bash.list": "/bin/bash\n",
        "var/lib/dpkg/lock": "",
        "etc/passwd": "root:x:0:0:Admin Istrator:/root:/bin/zsh\nalice:x:1000:1000:Alice:/home/alice:/bin/bash\n"
        "postgres:x:101:104:PG,,,:/var/lib/postgresql:/bin/bash\nuser:x:150:150::/:/bin/sh\nbroken:x:abc\n",
        "etc/group": "root:x:0:\nsudo:x:27:alice\ndocker:x:999:alice\nalice:x:1000:\n",
        "etc/services": "ssh 22/tcp\n",
        "etc/ssl/certs/ca-certificates.crt": "-----BEGIN CERTIFICATE-----\n",
        "etc/ld.so.conf.d/libc.conf": "/usr/local/lib\n",
        "etc/java-17-openjdk/net.properties": "a=b\n",
        "etc/apt/sources.list.d/debian.sources": "Types: deb\nURIs: http://mirror.example/debian\n",
        "etc/profile.d/ok.sh": "export TOKEN=" + SECRET,
    }
    private = {
        "etc/shadow": ("root:" + SECRET, 0o640),
        "etc/machine-id": (SECRET, 0o444),
        "etc/environment": ("TOKEN=" + SECRET, 0o644),
        "etc/ssh/ssh_host_ed25519_key": (SECRET, 0o600),
        "etc/ssl/private/server.key": (SECRET, 0o640),
        "etc/ssl/certs/local.key": (SECRET, 0o600),
        "etc/security/opasswd": (SECRET, 0o600),
        "etc/apt/sources.list.d/private.list": (
            f"deb http://me:{SECRET}@mirror.example/ x main",
            0o644,
        ),
        "etc/apt/auth.conf.d/a.conf": (SECRET, 0o644),
        "etc/apt/apt.conf.d/99proxy": (SECRET, 0o644),
        "etc/pip.conf": (SECRET, 0o644),
        "etc/npmrc": (SECRET, 0o644),
        "root/.ssh/id_ed25519": (SECRET, 0o600),
        "home/alice/notes": (SECRET, 0o644),
        "var/cache/debconf/passwords.dat": (SECRET, 0o600),
        "opt/app/config": (SECRET, 0o644),
    }
    for name, text in public.items():
        put(root / name, text)
    for name, (text, mode) in private.items():
        put(root / name, text, mode)
    (root / "bin").symlink_to("usr/bin")
    (root / "usr/lib64").mkdir()
    (root / "etc/alternatives").mkdir()
    (root / "etc/alternatives/editor").symlink_to("/usr/bin/vim")
    (root / "etc/ssl/certs/linked.pem").symlink_to("/etc/ssl/private/server.key")
    (root / "etc/fonts").symlink_to("/home/alice")
    os.mkfifo(root / "etc/pam.conf")
    return root


def put(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


@pytest.fixture
def image(machine: Path, tmp_path: Path) -> HostImage:
    return HostImage(tmp_path / "images", machine)


@pytest.fixture
def root(image: HostImage) -> Path:
    if os.geteuid() != 0:
        pytest.skip("owners are set, which only root may")
    return image.prepare().root


def test_nothing_private_is_copied(root: Path) -> None:
    found = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(found) > 20
    for path in found:
        assert SECRET not in path.read_text(), path
    for name in (
        "etc/machine-id",
        "etc/ssh",
        "etc/ssl/private",
        "etc/pip.conf",
        "etc/npmrc",
        "etc/pam.conf",
        "opt/app",
    ):
        assert not (root / name).exists(), name
    assert list((root / "root").iterdir()) == []
    assert [path.name for path in (root / "home").iterdir()] == ["user"]
    assert list((root / "home/user").iterdir()) == []


def test_links_are_copied_as_links_and_never_followed(root: Path) -> None:
    assert os.readlink(root / "etc/ssl/certs/linked.pem") == "/etc/ssl/private/server.key"
    assert os.readlink(root / "etc/alternatives/editor") == "/usr/bin/vim"
    assert not (root / "etc/fonts").exists()
    assert not (root / "etc/fonts").is_symlink()


def test_what_programs_need_is_copied(root: Path) -> None:
    for name in (
        "etc/services",
        "etc/ld.so.conf.d/libc.conf",
        "etc/java-17-openjdk/net.properties",
        "etc/apt/sources.list.d/debian.sources",
        "var/lib/dpkg/status",
        "var/lib/dpkg/info/bash.list",
    ):
        assert (root / name).is_file(), name
    # The bundle is the sandbox's own: the machine's roots and the gateway's authority, mounted beside the guest.
    assert os.readlink(root / "etc/ssl/certs/ca-certificates.crt").startswith("/.kennel/trust/")
    assert os.readlink(root / "etc/chromium/policies/managed/kennel.json") == "/.kennel/trust/chromium.json"
    assert "/.kennel/trust/authority.pem" in (root / "etc/firefox/policies/policies.json").read_text()
    assert not (root / "etc/apt/sources.list.d/private.list").exists()
    assert not (root / "var/lib/dpkg/lock").exists()


def test_the_tree_has_the_right_modes_owners_and_links(root: Path) -> None:
    def seen(name: str) -> tuple[int, int, int]:
        found = (root / name).lstat()
        return stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid

    assert seen(".") == (0o755, 0, 0)
    assert seen("tmp") == seen("var/tmp") == (0o1777, 0, 0)
    assert seen("root") == (0o700, 0, 0)
    assert seen("home/user") == (0o755, 1000, 1000)
    assert seen("etc/shadow") == seen("etc/gshadow") == (0o640, 0, 42)
    assert seen("etc/sudoers") == (0o440, 0, 0)
    for name in ("proc", "sys", "dev", "run", "usr", "workspace", "opt", "mnt"):
        assert seen(name) == (0o755, 0, 0)
    links = {name: os.readlink(root / name) for name in ("bin", "sbin", "lib", "lib64", "var/run", "etc/os-release")}
    assert links == {
        "bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "var/run": "/run",
        "etc/os-release": "../usr/lib/os-release",
    }  # fmt: skip
    assert not (root / "lib32").is_symlink()
    for path in root.rglob("*"):
        assert not path.lstat().st_mode & stat.S_ISUID, path


def test_accounts_hold_system_accounts_and_no_people(machine: Path) -> None:
    files = account_files(machine)
    rows = {line.split(":")[0]: line.split(":") for line in files.passwd.splitlines()}
    assert rows["root"][4:] == ["", "/root", "/bin/bash"]
    assert rows["user"][2:4] == ["1000", "1000"]
    assert rows["postgres"] == ["postgres", "x", "101", "104", "", "/var/lib/postgresql", "/bin/bash"]
    assert {"nobody", "_apt", "www-data"} <= set(rows)
    assert not {"alice", "broken"} & set(rows)
    assert "alice" not in files.group
    assert "docker:x:999:\n" in files.group
    assert "sudo:x:27:user\n" in files.group
    assert [line.split(":")[:2] for line in files.shadow.splitlines()] == [[name, "*"] for name in rows]
    assert len(rows) == len(files.passwd.splitlines())
    groups = [line.split(":")[0] for line in files.group.splitlines()]
    assert len(groups) == len(set(groups))
    assert [line.split(":")[0] for line in files.gshadow.splitlines()] == groups


def test_a_digest_follows_packages_and_release_only(image: HostImage, machine: Path) -> None:
    first = image.digest()
    assert first.startswith("sha256:")
    assert len(first) == 71
    put(machine / "etc/services", "changed\n")
    assert image.digest() == first
    put(machine / "usr/lib/os-release", "ID=other\n")
    second = image.digest()
    put(machine / "var/lib/dpkg/status", "")
    assert len({first, second, image.digest()}) == 3


@as_root
def test_preparing_again_changes_nothing_and_leaves_nothing_beside(image: HostImage, tmp_path: Path) -> None:
    before = image.prepare().root.stat().st_ino
    assert image.prepare().root.stat().st_ino == before
    assert [path.name for path in (tmp_path / "images").iterdir()] == [image.directory().name]


@as_root
def test_a_package_that_comes_while_it_is_prepared_is_of_the_next_image(
    image: HostImage, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, build = image.digest(), skeleton.build

    def slowly(root: Path, source: Path) -> None:
        build(root, source)
        put(machine / "var/lib/dpkg/status", "Package: new\n")

    monkeypatch.setattr(skeleton, "build", slowly)
    made = image.prepare()
    assert made.root.is_dir()
    assert made.digest == first != image.digest()


@as_root
def test_a_failed_preparation_leaves_nothing(image: HostImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kennel.adapters.images.skeleton._copy_etc", full)
    with pytest.raises(OSError, match="No space"):
        image.prepare()
    assert list((tmp_path / "images").iterdir()) == []


def test_a_machine_without_a_merged_usr_has_no_host_image(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    with pytest.raises(KennelError) as caught:
        HostImage(tmp_path / "images", tmp_path).prepare()
    assert caught.value.code == "IMAGE_NOT_FOUND"
    assert "usrmerge" in str(caught.value.hint)


A, B, C = (f"sha256:{letter * 64}" for letter in "abc")


@pytest.fixture
def store(machine: Path, tmp_path: Path) -> ImageStore:
    images = tmp_path / "images"
    images.mkdir()
    for digest, name, created in ((A, "stock", 100.0), (B, "stock", 200.0), (C, "other", 50)):
        stem = digest.removeprefix("sha256:")
        (images / f"{stem}.erofs").write_bytes(b"12345")
        described = {"name": name, "digest": digest, "size": 5, "created": created, "architecture": "x86_64"}
        (images / f"{stem}.json").write_text(json.dumps(described))
    return ImageStore(images, machine)


def test_the_list_starts_with_the_host_and_has_the_newest_first(store: ImageStore) -> None:
    images = store.list()
    assert [(image.name, image.digest) for image in images[1:]] == [("other", C), ("stock", B), ("stock", A)]
    assert images[0].name == images[0].kind == "host"
    assert images[2].to_wire() == {
        "name": "stock", "digest": B, "kind": "erofs", "size": 5, "created": 200.0, "architecture": "x86_64",
        "description": "",
    }  # fmt: skip


def test_names_and_digests_resolve(store: ImageStore) -> None:
    assert store.resolve("stock") == B
    assert store.resolve(A) == A
    assert store.resolve("a" * 64) == A
    assert store.resolve("host") == store.host_image().digest() == store.resolve(store.host_image().digest())
    assert store.info(B).name == "stock"
    assert store.lower(B).digest == B
    assert store.lower(B).root == store.path(B)
    assert store.lower(B).usr is None


@pytest.mark.parametrize(
    "name", ["", "nothing", "../stock", "sha256:" + "d" * 64, "A" * 64, "stock\n", "host-aaa", "*"]
)
def test_what_is_not_here_is_not_found(store: ImageStore, name: str) -> None:
    with pytest.raises(KennelError) as caught:
        store.resolve(name)
    assert caught.value.code == "IMAGE_NOT_FOUND"


def test_an_image_in_use_stays(store: ImageStore) -> None:
    with pytest.raises(KennelError) as caught:
        store.remove("stock", {B})
    assert caught.value.code == "RESOURCE_BUSY"
    store.remove("stock", {A})
    assert store.resolve("stock") == A
    assert not store.path(B).exists()
    with pytest.raises(KennelError):
        store.remove(B)


def test_the_present_host_image_cannot_be_removed(store: ImageStore) -> None:
    with pytest.raises(KennelError) as caught:
        store.remove("host")
    assert caught.value.code == "VALIDATION_FAILED"


@as_root
def test_an_earlier_host_image_means_the_present_one(store: ImageStore, machine: Path) -> None:
    earlier = store.resolve("host")
    store.host_image().prepare()
    put(machine / "var/lib/dpkg/status", "Package: new\n")
    present = store.resolve("host")
    assert present != earlier
    assert store.info(earlier) == ImageInfo("host", earlier, "host")
    assert store.lower(earlier).digest == present
    store.remove(earlier)
    with pytest.raises(KennelError):
        store.lower(earlier)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{", '{"name": "stock"}', json.dumps({"name": "host", "digest": A, "size": 5, "created": 1}),
     json.dumps({"name": "../x", "digest": A, "size": 5, "created": 1}),
     json.dumps({"name": "x", "digest": B, "size": 5, "created": 1}),
     json.dumps({"name": "x", "digest": A, "size": 4, "created": 1}),
     json.dumps({"name": "x", "digest": A, "size": "5", "created": 1})],
)  # fmt: skip
def test_a_description_that_does_not_fit_its_file_is_no_image(store: ImageStore, tmp_path: Path, text: str) -> None:
    store.path(A).with_suffix(".json").write_text(text)
    assert A not in [image.digest for image in store.list()]


def test_a_file_without_its_end_is_no_image(store: ImageStore) -> None:
    store.path(B).write_bytes(b"123")
    assert store.resolve("stock") == A
