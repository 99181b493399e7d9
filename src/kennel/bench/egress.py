"""Owns `kennel bench egress`: the gateway beside mitmproxy 12, for small requests, new connections and large bodies.

Called by installation/bench. Invariant: both stand in one namespace before one host, in one run, and get one load; a
row's number is CPU milliseconds of what stands between, which neighbours of this machine move less than rates.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kennel.bench import oracle
from kennel.bench.egress_parts import HOST, LARGE, LARGE_BYTES, SITE, SMALL
from kennel.bench.figures import Report
from kennel.gateway.authority import Authority
from kennel.node import interception, netns
from kennel.node.gateway_link import GatewayLink

GATEWAY, WORLD = "45.45.0.2", "45.45.0.1"
SANDBOX = "benchsandbox1"
CONTROL_UID = 65534
PORT = 8090
_GATEWAY = """
import json, sys
from kennel.gateway import process
from kennel.gateway.options import Options
process.run(Options(**json.loads(sys.argv[1])))
"""
# New connections: a client spends as much on one as the gateway does (0.65 ms), so there are enough at once that what
# stands between always has one to work on.
LOADS = {
    "small requests, kept connections": {"path": SMALL, "fresh": False, "connections": 8, "seconds": 4},
    "new TLS connections": {"path": SMALL, "fresh": True, "connections": 12, "seconds": 4},
    "large bodies, per 64 MiB": {"path": LARGE, "fresh": False, "connections": 1, "seconds": 4},
}


def measure(rounds: int = 3) -> Report:
    """CPU milliseconds of the process in the middle, for one request, connection or 64 MiB."""
    report = Report("egress, CPU milliseconds of what stands between")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kennel-bench-", dir="/var/tmp")))
        folder.chmod(0o755)
        inner, outside, sandbox = (stack.enter_context(_net(folder / name)) for name in ("inner", "outside", "sandbox"))
        _join(inner, outside)
        authority = Authority(folder)
        (folder / "roots.pem").write_text(authority.pem)
        chain = folder / "chain.pem"
        chain.write_bytes(authority.chain(HOST))
        stack.enter_context(_part(outside, "site", {"chain": str(chain), "resolver": WORLD}))
        gateway = stack.enter_context(_gateway(folder, inner, sandbox))
        trusted = folder / "gateway" / "trusted.pem"
        ways: dict[str, tuple[int, Callable[[dict[str, Any]], dict[str, Any]]]] = {
            "gateway": (gateway, lambda load: _load(sandbox, load, trusted, HOST, 443))
        }
        program = oracle.mitmdump()
        if program is None:
            report.facts["mitmproxy"] = "cannot be had here"
        else:
            (folder / "mitm").mkdir()
            roots = folder / "roots.pem"
            upstream = f"https://{SITE}:443"
            pid = stack.enter_context(oracle.running(program, inner, folder / "mitm", upstream, roots, PORT))
            trust = folder / "mitm" / "mitmproxy-ca-cert.pem"
            ways["mitmproxy"] = pid, lambda load: _load(inner, load, trust, "127.0.0.1", PORT)
        _rows(report, ways, rounds)
    return report


def _rows(report: Report, ways: dict[str, tuple[int, Any]], rounds: int) -> None:
    samples: dict[tuple[str, str], list[float]] = {}
    rates: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, load in LOADS.items():
            for way, (pid, run) in ways.items():
                before = _cpu(pid)
                done = run(load)
                unit = done["count"] / (LARGE_BYTES if load["path"] == LARGE else 1)
                samples.setdefault((name, way), []).append((_cpu(pid) - before) / unit * 1000)
                rates.setdefault(f"{name}, {way}, a second", []).append(unit / done["seconds"])
    report.facts |= {name: round(statistics.median(found), 1) for name, found in rates.items()}
    for (name, way), found in samples.items():
        # The gateway's row is what the other is compared with: the ratio is how many times as much it needs.
        report.add(f"{name}, {way}", found, f"{name}, gateway" if way != "gateway" else None)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _net(handle: Path) -> Iterator[Path]:
    netns.create(handle)
    try:
        yield handle
    finally:
        netns.remove(handle)


def _join(inner: Path, outside: Path) -> None:
    def run(handle: Path, *words: str) -> None:
        subprocess.run(["nsenter", f"--net={handle}", "ip", *words], check=True, capture_output=True)

    run(outside, "link", "add", "w0", "type", "veth", "peer", "name", "g0")
    run(outside, "link", "set", "g0", "netns", str(inner))
    for handle, link, address in ((outside, "w0", WORLD), (inner, "g0", GATEWAY)):
        run(handle, "addr", "add", f"{address}/16", "dev", link)
        run(handle, "link", "set", link, "up")
        run(handle, "link", "set", "lo", "up")
    run(inner, "route", "add", "default", "via", WORLD)
    run(outside, "addr", "add", f"{SITE}/32", "dev", "lo")


@contextmanager
def _part(net: Path | None, name: str, told: dict[str, Any]) -> Iterator[int]:
    words = [sys.executable, "-m", "kennel.bench.egress_parts", name, json.dumps(told)]
    process = subprocess.Popen([*_within(net), *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{name} did not start")
        yield process.pid
    finally:
        process.terminate()
        process.wait(10)


def _within(net: Path | None) -> list[str]:
    return [] if net is None else ["nsenter", f"--net={net}"]


@contextmanager
def _gateway(folder: Path, inner: Path, sandbox: Path) -> Iterator[int]:
    data, path = folder / "gateway", folder / "gateway.sock"
    data.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(8)
        listener.set_inheritable(True)
        options = {
            "data": str(data), "listener": listener.fileno(), "control_uid": CONTROL_UID, "resolver": f"{WORLD}:53",
            "extra_roots": str(folder / "roots.pem"), "connections_per_second": 1e6, "connection_burst": 1_000_000,
            "requests_per_second": 1e6, "journal_bytes": 1 << 30,
        }  # fmt: skip
        words = [sys.executable, "-c", _GATEWAY, json.dumps(options)]
        process = subprocess.Popen([*_within(inner), *words], pass_fds=[listener.fileno()])

    def learn(pem: str) -> None:
        (data / "trusted.pem").write_text(pem)

    link = GatewayLink(path, learn)
    try:
        link.start()
        interception.lay(sandbox)
        link.add(SANDBOX, sandbox)
        with _part(None, "desk", {"uid": CONTROL_UID, "socket": str(path), "sandbox": SANDBOX}):
            yield process.pid
    finally:
        link.close()
        process.terminate()
        process.wait(10)


def _load(net: Path, load: dict[str, Any], roots: Path, address: str, port: int) -> dict[str, Any]:
    told = {**load, "roots": str(roots), "address": address, "port": port}
    resolver = roots.parent / "resolv.conf"
    resolver.write_text("nameserver 198.18.0.1\n")
    script = f'mount --bind {resolver} /etc/resolv.conf && exec "$@"'
    words = [sys.executable, "-m", "kennel.bench.egress_parts", "load", json.dumps(told)]
    done = subprocess.run(
        [*_within(net), "unshare", "-m", "sh", "-c", script, "sh", *words], check=True, capture_output=True, timeout=120
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found
