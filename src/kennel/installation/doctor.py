"""Owns the look at the machine: what Kennel needs, what is there, and the remedy for each line that fails.

Called by up (only what it cannot do without) and as `kennel doctor` (everything, runtimes' known holes included).
Invariant: every failing line names a remedy; looking changes nothing that outlasts it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from kennel.installation import layout
from kennel.settings import Settings


@dataclass(frozen=True, slots=True)
class Line:
    """One thing looked at. `needed` lines that are not `ok` stop `up`."""

    what: str
    ok: bool
    found: str
    remedy: str = ""
    needed: bool = True


def needs(settings: Settings) -> Iterator[Line]:
    """What `up` cannot start without, cheap to look at (under 10 ms)."""
    yield _root()
    for name, package in (("mkfs.ext4", "e2fsprogs"), ("mkfs.erofs", "erofs-utils"), ("nft", "nftables")):
        yield _program(name, package)
    runtimes = ("runc", "crun") if settings.runtime == "auto" else (settings.runtime,)
    found = [name for name in runtimes if _which(name)]
    yield Line("OCI runtime", bool(found), ", ".join(found) or "none", "apt-get install runc")
    kernel = Path("/proc/filesystems").read_text()
    for kind in ("overlay", "ext4", "tmpfs"):
        yield Line(
            f"kernel: {kind}", f"\t{kind}\n" in kernel, "there" if kind in kernel else "missing", f"modprobe {kind}"
        )
    most = int(Path("/proc/sys/user/max_user_namespaces").read_text())
    yield Line("user namespaces", most > 0, f"at most {most}", "sysctl user.max_user_namespaces=65536")
    yield Line("loop devices", os.path.exists("/dev/loop-control"), "/dev/loop-control", "modprobe loop")
    yield _cgroups()
    if settings.egress:
        yield _interception()


def everything(settings: Settings) -> Iterator[Line]:
    """All of it: needs, each runtime tried for real, known holes, space, and whether an installation runs."""
    yield from needs(settings)
    yield from _runtimes(settings)
    free = shutil.disk_usage(next(path for path in (settings.data, *settings.data.parents) if path.exists())).free
    enough = free > settings.floor_disk
    yield Line(
        "free disk", enough, f"{free / 1e9:.1f} GB", "free some: below the floor no sandbox is created", needed=False
    )
    erofs = "\terofs\n" in Path("/proc/filesystems").read_text()
    yield Line(
        "kernel: erofs", erofs, "there" if erofs else "missing", "modprobe erofs (for built images)", needed=False
    )
    yield _buckets()
    pid = layout.running(settings, "up") if settings.run.is_dir() else None
    yield Line("running", pid is not None, f"pid {pid}" if pid else "no", "./kennel up", needed=False)
    yield _previews(settings, running=pid is not None)


def _buckets() -> Line:
    from kennel.node.buckets.mounts import Buckets

    lacking = Buckets.lacking()
    remedy = "modprobe fuse" if lacking == "/dev/fuse" else "apt-get install s3fs (for mounts of buckets)"
    return Line("s3fs", lacking is None, f"{lacking} is missing" if lacking else "there", remedy, needed=False)


def _previews(settings: Settings, *, running: bool) -> Line:
    """Where previews are served; while nothing runs, whether their port is free."""
    if not settings.egress:
        return Line("previews", False, "none", "KENNEL_EGRESS=true: the gateway serves them", needed=False)
    if running:
        return Line("previews", True, layout.noted(settings, "preview-base") or "coming", needed=False)
    host, port = settings.preview_address
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return Line("previews", True, f"{host}:{port} is free", needed=False)
    except (OSError, OverflowError) as failure:
        return Line("previews", False, f"{host}:{port}: {failure}", "choose another --preview-port", needed=False)


def _root() -> Line:
    return Line("root", os.geteuid() == 0, f"uid {os.geteuid()}", "start as root")


def _which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _program(name: str, package: str) -> Line:
    path = _which(name)
    return Line(name, path is not None, path or "missing", f"apt-get install {package}")


def _cgroups() -> Line:
    from kennel.node import cgroup

    tree = cgroup.find()
    lacking = {"cpu", "memory", "pids", "freezer"} - set(tree.v1)
    ok = tree.unified is not None or not lacking
    found = "version 2" if tree.unified else "version 1" if ok else f"version 1 without {', '.join(sorted(lacking))}"
    return Line("control groups", ok, found, "mount the missing controllers, or boot with version 2")


def _interception() -> Line:
    from kennel.node import nftables

    lacking = nftables.available()
    return Line(
        "nftables", lacking is None, lacking or "there", "apt-get install nftables, or KENNEL_EGRESS=false (no network)"
    )


def _runtimes(settings: Settings) -> Iterator[Line]:
    from kennel.adapters.oci.runtime import OciRuntime
    from kennel.domain.advisories import advisories

    if os.geteuid() != 0 or not settings.data.is_dir():
        return
    for name in ("runc", "crun"):
        if not _which(name):
            continue
        found = OciRuntime(name, settings.data / "node" / f"doctor-{name}").probe()
        said = f"{found.version}: {'works' if found.usable else found.reason}"
        yield Line(f"runtime {name}", found.usable, said, found.remedy or "", needed=False)
        for known in advisories(name, found.version or "", _package_version(name)):
            said = f"{known.summary}; mitigated here: {known.mitigated} ({known.because})"
            yield Line(f"  {known.id}", known.mitigated == "yes", said, known.remedy, needed=False)
    if _which("runsc"):
        yield Line(
            "runtime runsc", False, "installed", "not offered: this release cannot be handed a socket", needed=False
        )


def _package_version(package: str) -> str | None:
    status = Path(f"/var/lib/dpkg/info/{package}.list")
    if not status.exists():
        return None
    text = Path("/var/lib/dpkg/status").read_text(errors="replace")
    entry = text.partition(f"Package: {package}\n")[2].partition("\n\n")[0]
    return entry.partition("Version: ")[2].partition("\n")[0] or None


def main() -> None:
    parser = argparse.ArgumentParser(prog="kennel doctor", description="Look at this machine and say what is missing.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    settings = Settings(data=options.data.absolute()) if options.data else Settings()  # type: ignore[call-arg]
    lines = list(everything(settings))
    if options.json:
        print(json.dumps([asdict(line) for line in lines], indent=2))
    else:
        _print(lines, lambda text, code: f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() else text)
    sys.exit(1 if any(line.needed and not line.ok for line in lines) else 0)


def _print(lines: list[Line], colour: Callable[[str, int], str]) -> None:
    width = max(len(line.what) for line in lines)
    for line in lines:
        mark = colour("ok", 32) if line.ok else colour("no", 31 if line.needed else 33)
        print(f"{mark}  {line.what:<{width}}  {line.found}{'' if line.ok or not line.remedy else f'  → {line.remedy}'}")


if __name__ == "__main__":
    main()
