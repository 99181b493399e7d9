"""A sandbox of the attack suite's own: runc, the host image's layers, and the walls under test, without any server.

Used by conftest.py and by hand. Everything lies under one temporary directory and one container name, and `close()`
takes it down again: mounts, container, cgroup.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from walls import Ran

from kennel.adapters.images.host import HostImage
from kennel.adapters.oci.confinement import MASKED_PATHS, READONLY_PATHS, RLIMITS, oci_capabilities, oci_rlimits
from kennel.adapters.oci.seccomp import seccomp_profile

FIRST_ID, IDS = 0x30000000, 65536
"""Outside ids of root inside and how many; far from anything else on the machine."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_EMPTY_PATH, _OPEN_TREE_CLONE, _MOVE_EMPTY, _IDMAP = 0x1000, 1, 4, 0x00100000


def _mount(target: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": kind, "source": kind, "options": ["nosuid", *options]}


_MOUNTS = [
    _mount("/proc", "proc", "noexec", "nodev"),
    _mount("/dev", "tmpfs", "mode=755", "size=64k"),
    _mount("/dev/pts", "devpts", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
    _mount("/dev/shm", "tmpfs", "noexec", "nodev", "mode=1777", "size=64m"),
    _mount("/dev/mqueue", "mqueue", "noexec", "nodev"),
    _mount("/sys", "tmpfs", "noexec", "nodev", "ro", "mode=755", "size=64k"),
]


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _id_mapped(source: Path, target: Path) -> None:
    """Mounts `source` at `target` with its ids shifted into the sandbox's range."""
    holder = subprocess.Popen(["unshare", "--user", "sleep", "60"])
    try:
        mine = os.readlink("/proc/self/ns/user")
        while os.readlink(f"/proc/{holder.pid}/ns/user") == mine:
            pass
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{holder.pid}/{name}").write_text(f"0 {FIRST_ID} {IDS}\n")
        tree = _check(_LIBC.syscall(_OPEN_TREE, -100, str(source).encode(), _OPEN_TREE_CLONE), "open_tree")
        namespace = os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY)
        wanted = (ctypes.c_uint64 * 4)(_IDMAP, 0, 0, namespace)
        _check(
            _LIBC.syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, ctypes.byref(wanted), ctypes.sizeof(wanted)),
            "mount_setattr",
        )
        _check(_LIBC.syscall(_MOVE_MOUNT, tree, b"", -100, str(target).encode(), _MOVE_EMPTY), "move_mount")
        os.close(namespace)
        os.close(tree)
    finally:
        holder.kill()
        holder.wait()


@dataclass
class Bundle:
    """One OCI bundle; `run` starts a fresh container on the same files every time."""

    runtime: str = "runc"
    image: Path | None = None
    """An EROFS file to use in place of the host image."""
    here: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="kennel-attack-", dir="/var/tmp")))
    name: str = field(default_factory=lambda: f"kennel-attack-{uuid.uuid4().hex[:12]}")
    mounts: list[Path] = field(default_factory=list)
    first_id: int = FIRST_ID

    @property
    def hidden(self) -> tuple[str, ...]:
        return (str(self.here),)

    def __enter__(self) -> Bundle:
        try:
            self._mount()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def root(self) -> Path:
        return self.here / "rootfs"

    def _mount(self) -> None:
        self.here.chmod(0o755)
        for layer, source, target in self._layers():
            seen, upper, work = (f"{layer}-{part}" for part in ("lower", "upper", "work"))
            for path in (self.here / name for name in (seen, upper, work)):
                path.mkdir()
                os.chown(path, FIRST_ID, FIRST_ID)
                path.chmod(0o755)
            target.mkdir(exist_ok=True)
            _id_mapped(source, self.here / seen)
            self.mounts.append(self.here / seen)
            # Relative: the words of these options are readable inside, in /proc/self/mountinfo.
            options = f"lowerdir={seen},upperdir={upper},workdir={work},redirect_dir=on"
            subprocess.run(["mount", "-t", "overlay", "kennel", "-o", options, str(target)], check=True, cwd=self.here)
            self.mounts.append(target)

    def _layers(self) -> list[tuple[str, Path, Path]]:
        if self.image is not None:
            mounted = self.here / "image"
            mounted.mkdir()
            subprocess.run(["mount", "-t", "erofs", "-o", "ro", str(self.image), str(mounted)], check=True)
            self.mounts.append(mounted)
            return [("root", mounted, self.root)]
        image = HostImage(self.here / "images")
        lower = image.prepare()
        assert lower.usr is not None
        return [("root", lower.root, self.root), ("usr", lower.usr, self.root / "usr")]

    def spec(self, argv: Sequence[str], cwd: str = "/", uid: int = 0) -> dict[str, Any]:
        """The OCI configuration for one run."""
        ids = [{"containerID": 0, "hostID": FIRST_ID, "size": IDS}]
        return {
            "ociVersion": "1.0.2",
            "process": {
                "terminal": False,
                "user": {"uid": uid, "gid": uid},
                "args": list(argv),
                "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "HOME=/root", "LANG=C.UTF-8"],
                "cwd": cwd,
                "capabilities": oci_capabilities(),
                "rlimits": oci_rlimits({name: resource.getrlimit(getattr(resource, name))[1] for name in RLIMITS}),
                "noNewPrivileges": False,
            },
            "root": {"path": str(self.root), "readonly": False},
            "hostname": "attack",
            "mounts": _MOUNTS,
            "linux": {
                "uidMappings": ids,
                "gidMappings": ids,
                "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network", "cgroup", "user")],
                "cgroupsPath": f"/{self.name}",
                "resources": {"devices": [{"allow": False, "access": "rwm"}], "pids": {"limit": 512}},
                "seccomp": seccomp_profile(os.uname().machine),
                "rootfsPropagation": "rprivate",
                "maskedPaths": list(MASKED_PATHS),
                "readonlyPaths": list(READONLY_PATHS),
            },
        }  # fmt: skip

    def run(self, argv: Sequence[str], *, cwd: str = "/", uid: int = 0, stdin: bytes = b"", timeout: float = 60) -> Ran:
        """Runs `argv` as the first process of a new container."""
        (self.here / "config.json").write_text(json.dumps(self.spec(argv, cwd, uid)))
        command = [self.runtime, "--root", str(self.here / "state"), "run", "--bundle", str(self.here), self.name]
        try:
            done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout, check=False)
        finally:
            self._delete()
        return Ran(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def put(self, name: str, content: bytes, mode: int = 0o755) -> None:
        """Writes a file into the sandbox's root, owned by its root."""
        path = self.root / name.lstrip("/")
        path.write_bytes(content)
        os.chown(path, FIRST_ID, FIRST_ID)
        path.chmod(mode)

    def _delete(self) -> None:
        subprocess.run(
            [self.runtime, "--root", str(self.here / "state"), "delete", "--force", self.name],
            capture_output=True, check=False, timeout=30,
        )  # fmt: skip

    def close(self) -> None:
        """Takes everything down; safe to call again."""
        self._delete()
        for mount in reversed(self.mounts):
            subprocess.run(["umount", "--lazy", str(mount)], check=True)
        self.mounts.clear()
        shutil.rmtree(self.here, ignore_errors=True)
