"""Owns starting an installation: `python -m kennel.installation.up`, reached as `kennel up`.

Invariant: nothing half-starts: what is missing is said, with the remedy, before any process runs; a second `up` of the
same data folder is refused by the lock; `--detach` returns only when the API answers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, NoReturn

from kennel.domain.preview import Base
from kennel.installation import confine, layout
from kennel.installation.supervisor import Supervisor, services
from kennel.settings import CONTROL_UID, Settings

READY_SECONDS = 60.0
_CREDENTIALS = {
    "gateway": ("KENNEL_LANE_KEY", "KENNEL_EGRESS_PLATFORM_KEYS"),
    "control": ("KENNEL_AI_KEY", "KENNEL_DATABASE_URL", "KENNEL_BLOBS_OPTIONS"),
}


def main() -> None:
    options = _options()
    settings = _settings(options)
    problem = _problem(settings)
    if problem is not None:
        _refuse(problem)
    layout.make(settings)
    # A child of --detach may meet the lock of its parent, which is about to go.
    held = layout.lock(settings, 5.0 if options.child else 0.0)
    if held is None:
        _refuse(f"{settings.data} is in use by a running Kennel; `kennel down --data {settings.data}` stops it")
    with held:
        if not options.detach:
            _run(settings, options)
    if options.detach:
        _detach(settings, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kennel up", description="Start Kennel and keep it running.")
    parser.add_argument("--data", type=Path, help="where everything is kept")
    parser.add_argument("--host", help="address of the API (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port of the API (default 8787)")
    parser.add_argument("--preview-port", type=int, help="port of previews (default: port + 1)")
    parser.add_argument("--open", action="store_true", default=None, help="no keys; loopback only")
    parser.add_argument("--no-node", action="store_true", help="everything but sandboxes")
    parser.add_argument("--detach", action="store_true", help="return when the API answers")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _settings(options: argparse.Namespace) -> Settings:
    given = {name: getattr(options, name) for name in ("data", "host", "port", "preview_port", "open")}
    words: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if options.no_node:
        words["node"] = False
    settings = Settings(**words)
    settings.data = settings.data.absolute()
    return settings


def _problem(settings: Settings) -> str | None:
    """Why this installation cannot start here, with what to do about it."""
    if settings.preview_base is not None:
        try:
            Base.parse(settings.preview_base)
        except ValueError as fault:
            return f"KENNEL_PREVIEW_BASE: {fault}"
    loopback = settings.host in ("127.0.0.1", "::1", "localhost")
    if settings.open and not loopback:
        return f"--open turns keys off, so it binds loopback only, not {settings.host}"
    if os.geteuid() != 0 and settings.node:
        return (
            "Kennel starts as root: node makes namespaces and mounts, control and gateway give root up at once; "
            "as another user `up --no-node` starts everything but sandboxes"
        )
    unseen = confine.require_visible(settings.data) if os.geteuid() == 0 else None
    if unseen is not None or not settings.node:
        return unseen
    from kennel.installation import doctor

    return next((f"{line.what}: {line.found}; {line.remedy}" for line in doctor.needs(settings) if not line.ok), None)


def _refuse(why: str) -> NoReturn:
    print(f"error: {why}", file=sys.stderr)
    sys.exit(1)


def _detach(settings: Settings, options: argparse.Namespace) -> NoReturn:
    words = [word for word in sys.argv[1:] if word != "--detach"]
    log = settings.data / "logs" / "up.log"
    with open(log, "ab") as stream:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "kennel.installation.up", *words, "--child"],
            stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True, cwd="/",
        )  # fmt: skip
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if child.poll() is not None:
            _refuse(f"it did not start; the end of {log}:\n{_tail(log)}")
        if layout.running(settings, "up") == child.pid and (url := _url(settings)) and _healthy(url):
            _announce(settings, url, options.json)
            sys.exit(0)
        time.sleep(0.02)
    child.terminate()
    _refuse(f"the API did not answer within {READY_SECONDS:g} s; see {settings.data}/logs")


def _run(settings: Settings, options: argparse.Namespace) -> None:
    _, key_hash = layout.admin_key(settings.data)
    with contextlib.ExitStack() as held:
        listener = held.enter_context(_listen(settings.host, settings.port, "--port"))
        previews = _listen_for_visitors(settings)
        if previews is not None:
            held.enter_context(previews)
        gateway = held.enter_context(_gateway_socket(settings))
        host, port = listener.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        (settings.data / "url").write_text(url + "\n")
        rows = services(settings, listener, gateway, previews)
        supervisor = Supervisor(settings, rows, _environments(settings, key_hash))
        layout.note_process(settings, "up", os.getpid())
        supervisor.start()
        announced = options.child
        gone = time.monotonic() + READY_SECONDS

        def tick() -> None:
            nonlocal announced
            if not announced and _healthy(url):
                _announce(settings, url, options.json)
                announced = True
            elif not announced and time.monotonic() > gone:
                print(f"warning: the API does not answer yet; see {settings.data}/logs", file=sys.stderr)
                announced = True

        try:
            supervisor.run(tick)
        finally:
            supervisor.stop()
            for name in ("url", "preview-base"):
                (settings.data / name).unlink(missing_ok=True)
            for path in settings.run.glob("*.pid"):
                path.unlink()


def _listen(host: str, port: int, option: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as failure:
        _refuse(f"cannot listen on {host}:{port}: {getattr(failure, 'strerror', failure)}; choose another {option}")


def _listen_for_visitors(settings: Settings) -> socket.socket | None:
    """Where previews are served, which is then part of the settings; None without a gateway to serve them."""
    if not settings.egress:
        settings.preview_base = None
        return None
    listener = _listen(*settings.preview_address, "--preview-port")
    if settings.preview_base is None:
        settings.preview_base = f"http://*.localhost:{listener.getsockname()[1]}"
    (settings.data / "preview-base").write_text(settings.preview_base + "\n")
    return listener


def _gateway_socket(settings: Settings) -> socket.socket:
    """Where node and control meet the gateway; it outlives a gateway that dies, so that they only wait."""
    path = settings.gateway_socket
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.bind(str(path))
    if os.geteuid() == 0:
        os.chown(path, 0, CONTROL_UID)
    path.chmod(0o660)
    listener.listen(16)
    return listener


def _roots(settings: Settings) -> dict[str, str]:
    """The extra roots, copied to where the gateway can see them: not to its own folder, where it could put a link."""
    if settings.egress_roots is None:
        return {}
    inside = settings.run / "roots.pem"
    inside.write_bytes(settings.egress_roots.read_bytes())
    inside.chmod(0o644)
    return {"KENNEL_EGRESS_ROOTS": "/run/kennel/roots.pem" if os.geteuid() == 0 else str(inside)}


def _environments(settings: Settings, key_hash: str) -> dict[str, dict[str, str]]:
    """What each service is told: all of the installation's settings for node, as much as it needs for the others."""
    shared = {name: value for name, value in os.environ.items() if name.startswith("KENNEL_") or name == "PATH"}
    shared["PYTHONUNBUFFERED"] = "1"
    walled = os.geteuid() == 0
    uid, run = (CONTROL_UID, "/run/kennel") if walled else (os.geteuid(), str(settings.run))
    inside = {**shared, "KENNEL_RUN_FOLDER": run, "KENNEL_CONTROL_UID": str(uid)}

    def data(role: str) -> dict[str, str]:
        return {"KENNEL_DATA": "/data" if walled else str(settings.data / role)}

    control = {
        **inside,
        **data("control"),
        "KENNEL_ADMIN_KEY_HASH": key_hash,
        "KENNEL_OPEN": str(settings.open).lower(),
    }
    control |= {"KENNEL_NODE": str(settings.node).lower(), "KENNEL_HOST": settings.host}
    if settings.preview_base is not None:
        inside["KENNEL_PREVIEW_BASE"] = control["KENNEL_PREVIEW_BASE"] = settings.preview_base
    rows = {
        "node": {**shared, "KENNEL_DATA": str(settings.data)},
        "control": control,
        "gateway": inside | data("gateway") | _roots(settings),
    }
    # A credential is told to the one service that uses it.
    for service, names in _CREDENTIALS.items():
        for name in names:
            for other in rows.keys() - {service}:
                rows[other].pop(name, None)
    return rows


def _url(settings: Settings) -> str | None:
    return layout.noted(settings, "url")


def _healthy(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/health", timeout=1.0) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _announce(settings: Settings, url: str, as_json: bool) -> None:
    key_file = settings.data / "admin.key"
    if as_json:
        told = {"url": url, "keyFile": str(key_file), "data": str(settings.data)}
        print(json.dumps({**told, "previews": layout.noted(settings, "preview-base")}), flush=True)
        return
    option = (
        ""
        if settings.data == Settings.model_fields["data"].get_default(call_default_factory=True)
        else (f" --data {settings.data}")
    )
    print(f"Kennel answers at {url}")
    print(f"  previews    {layout.noted(settings, 'preview-base') or 'none (KENNEL_EGRESS=false)'}")
    print(f"  admin key   {'none asked (--open)' if settings.open else key_file}")
    print(f"  try         ./kennel sandbox create main{option} && ./kennel exec main{option} -- uname -a")
    print(f"  stop        ./kennel down{option}", flush=True)


def _tail(path: Path, lines: int = 15) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


if __name__ == "__main__":
    main()
