"""Owns the walls around control and gateway: a mount namespace with only what they need, their own user, no capability.

Run by the supervisor as `python -m kennel.installation.confine`, as root; it becomes the service. Invariant: after the
exec nothing of the host's files is visible but system libraries, the code, the role's own folder and the sockets; no
capability can come back (bounding set empty, no_new_privs). Started by another user than root, where there is no node
and so no sandbox to be walled off from, the service runs as that user, with the host's files before it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import sysconfig
from pathlib import Path
from typing import NoReturn

import kennel
from kennel.node import linux, private_root

_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_HOME = Path("/opt/kennel")
_ETC = ("ssl", "ca-certificates", "resolv.conf", "hosts", "nsswitch.conf", "localtime", "host.conf")
_DEVICES = ("null", "zero", "random", "urandom")
_DESCRIPTORS = 1 << 20
_HARD = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


def become(role: str, own: Path, run: Path, uid: int) -> None:
    """Turns this root process into the service `role`; does not return."""
    if os.geteuid() != 0:
        _as_somebody(role)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    _many_descriptors()
    _new_root(own, run)
    _drop(uid)
    environment = {
        **{name: value for name, value in os.environ.items() if name.startswith("KENNEL_")},
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/data",
        "PYTHONHOME": f"{_HOME}/python",
        "PYTHONPATH": f"{_HOME}/src:{_HOME}/site",
        "PYTHONDONTWRITEBYTECODE": "1",
        # The interpreter may be linked against its own shared library by a path that is not visible here.
        "LD_LIBRARY_PATH": f"{_HOME}/python/lib",
    }
    binary = f"{_HOME}/python/bin/{version}"
    os.execve(binary, [f"kennel-{role}", "-s", "-P", "-m", "kennel.assemble", role], environment)


def _as_somebody(role: str) -> NoReturn:
    _bind_to_supervisor()
    # Under its own path: by that the interpreter finds its environment.
    os.execve(sys.executable, [sys.executable, "-s", "-P", "-m", "kennel.assemble", role], dict(os.environ))


def _new_root(own: Path, run: Path) -> None:
    # The staging folder lies in the mount namespace that is made; nothing is left of it outside.
    root = run / ".root"
    private_root.begin(root)
    for name in _ETC:
        if (Path("/etc") / name).exists():
            private_root.bind((Path("/etc") / name).resolve(), root / "etc" / name, private_root.READ_ONLY)
    for name in _DEVICES:
        private_root.bind(Path("/dev") / name, root / "dev" / name, 0)
    (root / "dev/fd").symlink_to("/proc/self/fd")
    inside = root / _HOME.relative_to("/")
    private_root.bind(Path(sys.base_prefix), inside / "python", private_root.READ_ONLY)
    private_root.bind(Path(sysconfig.get_path("purelib")), inside / "site", private_root.READ_ONLY)
    private_root.bind(Path(kennel.__file__).resolve().parent.parent, inside / "src", private_root.READ_ONLY)
    private_root.bind(own, root / "data", linux.MS_NODEV)
    private_root.bind(run, root / "run/kennel", private_root.READ_ONLY)
    (root / "proc").mkdir()
    # Only its own processes: the gateway hands OpenSSL a key by the path of a descriptor.
    linux.mount("proc", str(root / "proc"), "proc", _HARD, "subset=pid,hidepid=invisible")
    (root / "tmp").mkdir()
    linux.mount("tmp", str(root / "tmp"), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=1777,size=64m")
    private_root.enter(root)


def _many_descriptors() -> None:
    """Raises the limit that only root may raise: each connection of each sandbox is two descriptors of the gateway."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(hard, min(_DESCRIPTORS, int(Path("/proc/sys/fs/nr_open").read_text())))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except ValueError:
        # Root without CAP_SYS_RESOURCE: what there is must do.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _drop(uid: int) -> None:
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # EINVAL: past the last capability this kernel knows
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # After the change of user, which clears it.
    _bind_to_supervisor()


def _bind_to_supervisor() -> None:
    """No privilege comes back, and if the supervisor dies, the service ends in order too."""
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() == 1:
        sys.exit("the supervisor is gone")


def require_visible(data: Path) -> str | None:
    """Why a sandbox's root could not walk to `data`, or None: each folder above must let others pass."""
    for folder in (data, *data.parents):
        if folder.exists() and not folder.stat().st_mode & 0o001:
            return f"{folder} is closed to other users; choose another --data, or `chmod o+x {folder}`"
    if any(mark in str(data) for mark in ":,\\ \n"):
        return f"{data} holds a character that mount options cannot carry"
    return None


if __name__ == "__main__":
    become(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
