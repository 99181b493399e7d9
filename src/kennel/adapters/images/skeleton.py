"""Owns the root of the host image without its /usr: directories, links, a generated /etc, the package database.

Called by host.py, as root. Invariants: only what is named here is copied from the machine, and of that only regular
files of root that everybody may read, and links as they are (never followed); nothing of /root, /home, /etc/shadow,
keys or machine-id. Equal inputs make equal trees.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from pathlib import Path

from kennel.adapters.images.accounts import SUDOERS, USER, USER_ID, account_files
from kennel.domain.container import RUNTIME_MOUNT

VERSION = 3
"""Part of the image's digest: raise it whenever the tree that build() makes changes."""

_LINKS = {
    "bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "var/run": "/run", "var/lock": "/run/lock",
    "etc/mtab": "/proc/self/mounts", "etc/os-release": "../usr/lib/os-release",
}  # fmt: skip
_LIBRARY_LINKS = ("lib32", "lib64", "libx32")
_PLAIN_DIRECTORIES = (
    "usr proc sys dev run boot media mnt opt srv home workspace etc etc/apt etc/apt/apt.conf.d etc/apt/preferences.d"
    " etc/init.d etc/default etc/profile.d etc/skel etc/opt etc/ssl etc/sudoers.d etc/cron.d etc/cron.daily"
    " var var/backups var/cache var/cache/apt var/cache/apt/archives var/cache/debconf var/lib var/lib/apt"
    " var/lib/apt/lists var/lib/misc var/lib/pam var/log var/log/apt var/opt var/spool"
)
_DIRECTORIES: dict[str, tuple[int, int, int]] = {
    **dict.fromkeys(_PLAIN_DIRECTORIES.split(), (0o755, 0, 0)),
    "root": (0o700, 0, 0),
    "tmp": (0o1777, 0, 0),
    "var/tmp": (0o1777, 0, 0),
    "var/local": (0o2775, 0, 50),
    "var/mail": (0o2775, 0, 8),
    f"home/{USER}": (0o755, USER_ID, USER_ID),
}
"""Path → mode, owner, group."""

_COPIED_FILES = (
    "ca-certificates.conf debian_version gai.conf host.conf inputrc ld.so.cache ld.so.conf locale.alias locale.gen"
    " localtime login.defs magic magic.mime mailcap mime.types networks pam.conf protocols rpc services shells"
    " timezone ssl/openssl.cnf default/locale default/useradd dpkg/origins xattr.conf"
)
_COPIED_TREES = (
    "alternatives ssl/certs ca-certificates ld.so.conf.d fonts terminfo perl python3 pam.d security groff"
    " postgresql-common vim X11/app-defaults bash_completion.d dpkg/origins emacs maven chromium.d ImageMagick-6"
    " apt/keyrings apt/trusted.gpg.d"
)
_COPIED_PATTERNS = ("java-*-openjdk", "python3.*")
"""Under /etc; a name that the machine does not have is skipped."""
_APT_SOURCES = ("apt/sources.list", "apt/sources.list.d", "apt/trusted.gpg")
_APT_SUFFIXES = (".list", ".sources", ".gpg")
_CHROMIUM_POLICIES = ("chromium", "opt/chrome", "opt/chrome_for_testing")
"""Where browsers, which have roots of their own and read no variable, look for what they are told."""
_CREDENTIALS = re.compile(rb"://[^/\s]*@")

_DPKG = "status diversions statoverride available cmethopt arch info alternatives triggers"
_DPKG_LIMIT = 256 * 1024 * 1024
_DPKG_LEFT_OUT = ("lock", "Lock", "-old")

_HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
_NSSWITCH = "passwd: files\ngroup: files\nshadow: files\ngshadow: files\nhosts: files dns\nnetworks: files\n"
_NSSWITCH += "protocols: files\nservices: files\nethers: files\nrpc: files\n"
_RESOLVER = "nameserver 198.18.0.1\n"
"""An address of the range kept for tests of networks: whatever is asked there is answered by Kennel's gateway."""
_PROFILE = """\
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
for script in /etc/profile.d/*.sh; do
  [ -r "$script" ] && . "$script"
done
unset script
[ -n "${BASH-}" ] && [ -n "${PS1-}" ] && . /etc/bash.bashrc
:
"""
_BASHRC = """\
[ -z "$PS1" ] && return
shopt -s checkwinsize
PS1='\\u@\\h:\\w\\$ '
"""


def build(root: Path, source: Path = Path("/")) -> None:
    """Fills the empty directory `root` from the machine at `source`; root only. Raises OSError as the disk does."""
    for name, (mode, uid, gid) in _DIRECTORIES.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        _own(root / name, mode, uid, gid)
    for name, target in _LINKS.items():
        (root / name).symlink_to(target)
    for name in _LIBRARY_LINKS:
        if (source / "usr" / name).is_dir():
            (root / name).symlink_to(f"usr/{name}")
    _generate_etc(root / "etc", source)
    _copy_etc(root / "etc", source / "etc")
    trust(root / "etc")
    _copy_package_database(root / "var/lib/dpkg", source / "var/lib/dpkg")
    _own(root, 0o755, 0, 0)


def trust(etc: Path) -> None:
    """Leads what reads the distribution's bundle of roots to the one that also holds the gateway's authority."""
    bundle = etc / "ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.unlink(missing_ok=True)
    bundle.symlink_to(f"{RUNTIME_MOUNT}/trust/roots.pem")
    for name in _CHROMIUM_POLICIES:
        _folders(etc, f"{name}/policies/managed")
        (etc / name / "policies/managed/kennel.json").symlink_to(f"{RUNTIME_MOUNT}/trust/chromium.json")
    _folders(etc, "firefox/policies")
    policies = {"policies": {"Certificates": {"Install": [f"{RUNTIME_MOUNT}/trust/authority.pem"]}}}
    _write(etc / "firefox/policies/policies.json", json.dumps(policies) + "\n")


def _folders(etc: Path, name: str) -> None:
    """Folders of root that everybody may read, whatever the caller's mask."""
    at = etc
    for part in name.split("/"):
        at = at / part
        at.mkdir(exist_ok=True)
        _own(at, 0o755)


def _own(path: Path, mode: int, uid: int = 0, gid: int = 0) -> None:
    os.chown(path, uid, gid)
    path.chmod(mode)


def _write(path: Path, text: str, mode: int = 0o644, gid: int = 0) -> None:
    path.write_text(text)
    _own(path, mode, 0, gid)


def _generate_etc(etc: Path, source: Path) -> None:
    """The files that are ours, whatever the machine's say."""
    accounts = account_files(source)
    _write(etc / "passwd", accounts.passwd)
    _write(etc / "group", accounts.group)
    _write(etc / "shadow", accounts.shadow, 0o640, 42)
    _write(etc / "gshadow", accounts.gshadow, 0o640, 42)
    _write(etc / "sudoers", SUDOERS, 0o440)
    _write(etc / "hostname", "sandbox\n")
    _write(etc / "hosts", _HOSTS)
    _write(etc / "nsswitch.conf", _NSSWITCH)
    _write(etc / "resolv.conf", _RESOLVER)
    _write(etc / "profile", _PROFILE)
    _write(etc / "bash.bashrc", _BASHRC)
    for empty in ("environment", "fstab", "motd", "subuid", "subgid"):
        _write(etc / empty, "")


def _copy_etc(etc: Path, source: Path) -> None:
    """What programs under /usr expect to find: see the lists above."""
    for name in _COPIED_FILES.split():
        _copy_entry(source / name, etc / name)
    trees = [*_COPIED_TREES.split(), *(p.name for pattern in _COPIED_PATTERNS for p in sorted(source.glob(pattern)))]
    for name in dict.fromkeys(trees):
        _copy_tree(source / name, etc / name)
    for name in _APT_SOURCES:
        entry = source / name
        for file in sorted(entry.iterdir()) if entry.is_dir() else [entry]:
            if file.suffix in _APT_SUFFIXES and file.is_file() and not _CREDENTIALS.search(file.read_bytes()):
                _copy_entry(file, etc / file.relative_to(source))


def _copy_package_database(target: Path, source: Path) -> None:
    """dpkg's records, so that apt works inside; left out, with an empty status, when they are very large."""
    target.mkdir(parents=True, exist_ok=True)
    for name in ("info", "updates", "parts", "triggers", "alternatives"):
        (target / name).mkdir(exist_ok=True)
    total = sum(f.stat().st_size for name in _DPKG.split() for f in _files(source / name))
    if total > _DPKG_LIMIT:
        _write(target / "status", "")
        return
    for name in _DPKG.split():
        for file in _files(source / name):
            if not file.name.endswith(_DPKG_LEFT_OUT):
                _copy_entry(file, target / file.relative_to(source))


def _files(path: Path) -> list[Path]:
    """The regular files of a directory, or the path itself when it is one."""
    if path.is_dir():
        return sorted(entry for entry in path.iterdir() if entry.is_file())
    return [path] if path.is_file() else []


def _copy_tree(source: Path, target: Path) -> None:
    """Every directory and copyable entry below `source`; a link to a directory stays a link."""
    if not source.is_dir() or source.is_symlink():
        return
    for folder, folders, files in os.walk(source):
        here = target / Path(folder).relative_to(source)
        here.mkdir(parents=True, exist_ok=True)
        folders[:] = [name for name in folders if _enter(Path(folder) / name, here / name)]
        for name in files:
            _copy_entry(Path(folder) / name, here / name)


def _enter(source: Path, target: Path) -> bool:
    """Whether the walk goes into this directory; a link to one is copied instead, a closed one is skipped."""
    if source.is_symlink():
        _copy_entry(source, target)
        return False
    return bool(source.stat().st_mode & stat.S_IXOTH)


def _copy_entry(source: Path, target: Path) -> None:
    """One link or one regular file of root that everybody may read; anything else is passed over in silence."""
    try:
        found = source.lstat()
    except FileNotFoundError:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISLNK(found.st_mode):
        if not target.is_symlink():
            target.symlink_to(os.readlink(source))
    elif stat.S_ISREG(found.st_mode) and found.st_uid == 0 and found.st_mode & stat.S_IROTH:
        shutil.copyfile(source, target)
        os.utime(target, ns=(found.st_mtime_ns, found.st_mtime_ns))
        _own(target, stat.S_IMODE(found.st_mode) & 0o755, 0, 0)
