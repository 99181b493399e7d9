"""Attack 66, the last of the matrix: apt, Go, Cargo, WebSockets, and clients that speak nothing but HTTP/2."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import socket
import ssl
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.flow.test_egress_packages import serve
from websockets.frames import Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from egress_room import VALUE, Room, need
from egress_world import Heard

if TYPE_CHECKING:
    from egress_fixtures import Desk

pytest_plugins = ["egress_fixtures"]
pytestmark = pytest.mark.root


@pytest.fixture
def room(desk: Desk, tmp_path: Path) -> Room:
    return Room(desk.box, tmp_path)


def packed(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


@pytest.mark.full
def test_66_apt_from_a_repository_of_its_own(desk: Desk, room: Room, tmp_path: Path) -> None:
    need("apt-get")
    need("dpkg-deb")
    tree = tmp_path / "pet-toy"
    (tree / "DEBIAN").mkdir(parents=True)
    control = "Package: pet-toy\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@b.example.com>\nDescription: a toy\n"
    (tree / "DEBIAN/control").write_text(control)
    subprocess.run(["dpkg-deb", "--build", str(tree), str(tmp_path / "toy.deb")], check=True, capture_output=True)
    package = (tmp_path / "toy.deb").read_bytes()
    listed = f"{control}Filename: ./toy.deb\nSize: {len(package)}\nSHA256: {hashlib.sha256(package).hexdigest()}\n"
    heads = serve(desk, "deb.example.com", files={"/./Packages": listed.encode(), "/./toy.deb": package})
    for folder in ("state/lists/partial", "cache/archives/partial", "etc", "got"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "state/status").write_text("")
    (tmp_path / "etc/sources.list").write_text("deb [trusted=yes] https://deb.example.com/ ./\n")
    options = {
        "Dir::State": tmp_path / "state", "Dir::State::status": tmp_path / "state/status",
        "Dir::Cache": tmp_path / "cache", "Dir::Etc::sourcelist": tmp_path / "etc/sources.list",
        "Dir::Etc::sourceparts": "-", "Dir::Etc::parts": "-", "APT::Sandbox::User": "root",
        "Acquire::https::CaInfo": room.roots, "Acquire::Languages": "none",
    }  # fmt: skip
    words = ["apt-get", *(f"-o{name}={value}" for name, value in options.items())]
    for command in (["update"], ["download", "pet-toy"]):
        done = room.run(*words, *command)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "pet-toy_1.0_all.deb").read_bytes() == package
    assert any(head.startswith(b"GET /./toy.deb ") for head in heads)


@pytest.mark.full
def test_66_go_from_a_module_proxy(desk: Desk, room: Room, tmp_path: Path) -> None:
    need("go")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("pet.example.com/toy@v1.0.0/go.mod", "module pet.example.com/toy\n")
        archive.writestr("pet.example.com/toy@v1.0.0/toy.go", "package toy\n")
    at = "/pet.example.com/toy/@v/v1.0.0"
    files = {f"{at}.info": b'{"Version": "v1.0.0", "Time": "2026-01-01T00:00:00Z"}'}
    files |= {f"{at}.mod": b"module pet.example.com/toy\n", f"{at}.zip": stream.getvalue()}
    heads = serve(desk, "proxy.example.com", files=files)
    desk.secret("/secrets/go", VALUE, "https://proxy.example.com")
    quoted = "getSecret(%22%2Fsecrets%2Fgo%22)"
    (tmp_path / "go.mod").write_text("module try\n\nrequire pet.example.com/toy v1.0.0\n")
    done = room.run(
        "go", "mod", "download", "-json", "pet.example.com/toy",
        GOPROXY=f"https://me:{quoted}@proxy.example.com", GONOSUMDB="*", GOSUMDB="off", GOFLAGS="-mod=mod -modcacherw",
        GOPATH=str(tmp_path / "go"), GOCACHE=str(tmp_path / "cache"), SSL_CERT_FILE=str(room.roots),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads(done.stdout)["Version"] == "v1.0.0"
    user = base64.b64encode(f"me:{VALUE}".encode())
    assert any(user in head for head in heads)


@pytest.mark.full
def test_66_cargo_from_a_registry_with_a_token(desk: Desk, room: Room, tmp_path: Path) -> None:
    need("cargo")
    manifest = b'[package]\nname = "pet-toy"\nversion = "1.0.0"\nedition = "2021"\n'
    crate = packed({"pet-toy-1.0.0/Cargo.toml": manifest, "pet-toy-1.0.0/src/lib.rs": b"pub fn squeak() {}\n"})
    row = {"name": "pet-toy", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(crate).hexdigest(), "features": {},
           "yanked": False}  # fmt: skip
    site = "https://crates.example.com"
    config = {"dl": f"{site}/dl/{{crate}}/{{version}}", "api": site, "auth-required": True}
    files = {"/index/config.json": json.dumps(config).encode(), "/index/pe/t-/pet-toy": json.dumps(row).encode()}
    heads = serve(desk, "crates.example.com", files={**files, "/dl/pet-toy/1.0.0": crate})
    desk.secret("/secrets/crates", VALUE, site)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/lib.rs").write_text("")
    (tmp_path / "Cargo.toml").write_text(
        '[package]\nname = "try"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n'
        'pet-toy = { version = "1", registry = "pets" }\n'
    )
    done = room.run(
        "cargo", "fetch",
        CARGO_HOME=str(tmp_path / "cargo"), RUSTUP_HOME=os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup")),
        CARGO_REGISTRIES_PETS_INDEX=f"sparse+{site}/index/", CARGO_HTTP_CAINFO=str(room.roots),
        CARGO_REGISTRIES_PETS_TOKEN='getSecret("/secrets/crates")',
        CARGO_REGISTRY_GLOBAL_CREDENTIAL_PROVIDERS="cargo:token",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "cargo/registry/src").glob("*/pet-toy-1.0.0/src/lib.rs"))
    assert any(f"authorization: {VALUE}".encode() in head for head in heads)


WEBSOCKET = """
const link = new WebSocket('wss://echo.example.com/chat', { headers: { 'x-token': process.env.TOKEN } });
const sent = 'x'.repeat(200000);
let got = 0;
link.onopen = () => { link.send('hello'); link.send(sent); };
link.onmessage = (event) => {
  got += 1;
  if (got === 1) console.log(event.data);
  if (got === 2) { console.log(event.data === sent); link.close(1000); }
};
link.onclose = (event) => console.log(event.code);
link.onerror = (event) => console.log(event.message);
"""


@pytest.mark.full
def test_66_a_websocket_of_node(desk: Desk, room: Room) -> None:
    need("node")
    given: list[str] = []

    def talk(_: Heard, link: socket.socket) -> None:
        protocol = ServerProtocol()
        while data := link.recv(65536):
            protocol.receive_data(data)
            for event in protocol.events_received():
                if isinstance(event, Request):
                    given.append(event.headers["x-token"])
                    protocol.send_response(protocol.accept(event))
                elif event.opcode is Opcode.TEXT:
                    protocol.send_text(event.data, event.fin)
            link.sendall(b"".join(protocol.data_to_send()))
            if protocol.close_expected():
                return

    desk.secret("/secrets/chat", VALUE, "https://echo.example.com")
    desk.world.site("echo.example.com", handler=talk)
    words = ["node", "--experimental-websocket", "-e", WEBSOCKET]
    done = room.run(*words, NODE_EXTRA_CA_CERTS=str(room.roots), TOKEN='getSecret("/secrets/chat")')
    assert done.stdout.decode().split() == ["hello", "true", "1000"], (done.stdout, done.stderr)
    assert given == [VALUE]


def test_66_curl_falls_back_and_what_speaks_only_http2_is_told_why(desk: Desk, room: Room) -> None:
    need("curl")
    need("node")
    desk.world.site("two.example.com")
    url, roots = "https://two.example.com/", str(room.roots)
    done = room.run("curl", "-sS", "--http2", "--cacert", roots, "-w", " %{http_version}", url)
    assert done.stdout == b"ok 1.1", done.stderr
    code = "require('http2').connect(process.argv[1]).on('error', (failure) => console.log(failure.message))"
    told = room.run("node", "-e", code, url, NODE_EXTRA_CA_CERTS=roots)
    assert b"no application protocol" in told.stdout.lower(), told.stdout
    row = desk.decision(code="http2_only")
    assert (row.layer, row.host, row.verdict) == ("tls", "two.example.com", "deny")
    # Their host may be let by unopened: then they speak to it as if nothing stood between.
    past = {"hosts": ["two.example.com"], "ports": [443]}
    desk.policy({"ruleKey": "past", "verdict": "allow", "mode": "passthrough", "match": past})
    trust = ssl.create_default_context(cafile=str(desk.world.authority.roots))
    trust.set_alpn_protocols(["h2"])
    with trust.wrap_socket(desk.box.connect("two.example.com", 443), server_hostname="two.example.com") as link:
        link.sendall(b"GET / HTTP/1.1\r\nhost: two.example.com\r\n\r\n")
        assert link.recv(65536).endswith(b"ok")
    desk.policy()
    # In the open nothing is negotiated: the answer itself says it.
    desk.world.serve(port=80)
    with desk.box.connect("two.example.com", 80) as link:
        link.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
        assert b'"code":"http2_only"' in link.recv(65536)


@pytest.mark.full
def test_66_an_event_stream_arrives_as_it_is_sent(desk: Desk, room: Room) -> None:
    need("curl")

    def events(heard: Heard, link: socket.socket) -> None:
        heard.read_request(link)
        link.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for number in range(3):
            link.sendall(b"data: %d\n\n" % number)
            link.settimeout(0.3)
            try:
                link.recv(1)
            except TimeoutError:
                continue

    desk.world.site("events.example.com", handler=events)
    script = (
        f"curl -sSN --cacert {room.roots} https://events.example.com/ | while read -r line; do"
        ' [ -n "$line" ] && echo "$(date +%s%N) $line"; done'
    )
    rows = [line.split() for line in room.run("sh", "-c", script).stdout.decode().splitlines()]
    assert [row[-1] for row in rows] == ["0", "1", "2"]
    assert int(rows[2][0]) - int(rows[0][0]) > 400_000_000
