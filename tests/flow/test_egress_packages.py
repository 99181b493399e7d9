"""Attack 66, the rest of the matrix: package managers and a push, unmodified, through a real gateway."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from tests.flow.test_egress_clients import VALUE, Room, need

from egress_world import Heard, World

if TYPE_CHECKING:
    from egress_fixtures import Desk

pytest_plugins = ["egress_fixtures"]
pytestmark = [pytest.mark.root, pytest.mark.full]


class Site(http.server.BaseHTTPRequestHandler):
    """Files from a table; what is not there is 404."""

    protocol_version = "HTTP/1.1"
    files: dict[str, bytes]

    def do_GET(self) -> None:
        found = self.files.get(self.path.partition("?")[0])
        self.send_response(200 if found is not None else 404)
        self.send_header("Content-Type", "application/json" if (found or b"").startswith(b"{") else "text/html")
        self.send_header("Content-Length", str(len(found or b"")))
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


class Place(Protocol):
    """Where a host can stand: a test's desk, or a whole installation."""

    world: World


def serve(desk: Place, *names: str, kind: type[Site] = Site, **words: object) -> list[bytes]:
    """An HTTPS host made of a handler class; the heads it was sent."""
    heads: list[bytes] = []

    class Here(kind):  # type: ignore[misc,valid-type]
        def parse_request(self) -> bool:
            done: bool = super().parse_request()
            heads.append(self.raw_requestline + (bytes(self.headers) if done else b""))
            return done

    for name, value in words.items():
        setattr(Here, name, value)

    def talk(_: Heard, link: socket.socket) -> None:
        Here(link, ("sandbox", 0), None)  # type: ignore[arg-type]

    desk.world.site(*names, handler=talk)
    return heads


@pytest.fixture
def room(desk: Desk, tmp_path: Path) -> Room:
    return Room(desk.box, tmp_path)


def wheel() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("pet_toy.py", "SOUND = 'squeak'\n")
        archive.writestr("pet_toy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: pet-toy\nVersion: 1.0\n")
        archive.writestr(
            "pet_toy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("pet_toy-1.0.dist-info/RECORD", "")
    return stream.getvalue()


def pip_site(desk: Place, host: str) -> list[bytes]:
    """An index with one package; the heads it was sent."""
    name = "pet_toy-1.0-py3-none-any.whl"
    page = f'<!DOCTYPE html><html><body><a href="/files/{name}">{name}</a></body></html>'.encode()
    return serve(desk, host, files={"/simple/pet-toy/": page, f"/files/{name}": wheel()})


def test_66_pip_from_an_index_with_a_password(desk: Desk, room: Room, tmp_path: Path) -> None:
    heads = pip_site(desk, "index.example.com")
    desk.secret("/secrets/index", VALUE, "https://index.example.com")
    user = base64.b64encode(f"me:{VALUE}".encode())
    quoted = "getSecret(%22%2Fsecrets%2Findex%22)"
    words = ["install", "--isolated", "--disable-pip-version-check", "--no-cache-dir"]
    words += ["--target", str(tmp_path / "got"), "--cert", str(room.roots)]
    index = f"https://me:{quoted}@index.example.com/simple/"
    done = room.run(sys.executable, "-m", "pip", *words, "--index-url", index, "pet-toy")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "got" / "pet_toy.py").read_text() == "SOUND = 'squeak'\n"
    assert any(user in head for head in heads)


def npm_site(desk: Place, host: str) -> list[bytes]:
    """A registry with one package; the heads it was sent."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for file, text in (("package.json", '{"name": "pet-toy", "version": "1.0.0"}'), ("index.js", "exports.a = 1")):
            entry = tarfile.TarInfo(f"package/{file}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    packed = stream.getvalue()
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(packed).digest()).decode()
    dist = {"tarball": f"https://{host}/pet-toy/-/pet-toy-1.0.0.tgz", "integrity": integrity}
    version = {"name": "pet-toy", "version": "1.0.0", "dist": dist}
    document = {"name": "pet-toy", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    files = {"/pet-toy": json.dumps(document).encode(), "/pet-toy/-/pet-toy-1.0.0.tgz": packed}
    return serve(desk, host, files=files)


def test_66_npm_with_a_token(desk: Desk, room: Room, tmp_path: Path) -> None:
    need("npm")
    heads = npm_site(desk, "npm.example.com")
    desk.secret("/secrets/npm", VALUE, "https://npm.example.com")
    (tmp_path / ".npmrc").write_text(
        "registry=https://npm.example.com/\n//npm.example.com/:_authToken=${NPM_TOKEN}\naudit=false\nfund=false\n"
    )
    (tmp_path / "package.json").write_text("{}")
    done = room.run(
        "npm",
        "install",
        "pet-toy",
        NPM_CONFIG_GLOBALCONFIG=str(tmp_path / "none"),
        NODE_EXTRA_CA_CERTS=str(room.roots),
        NPM_TOKEN='getSecret("/secrets/npm")',
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "node_modules/pet-toy/index.js").read_text() == "exports.a = 1"
    assert any(f"authorization: Bearer {VALUE}".encode() in head for head in heads)


@pytest.mark.parametrize("library", ["requests", "httpx2"])
def test_66_python_libraries(desk: Desk, room: Room, library: str) -> None:
    heads = serve(desk, "api.example.com", files={"/v1": b'{"a": 1}'})
    desk.secret("/secrets/api", VALUE, "https://api.example.com")
    code = (
        f"import {library} as c;"
        " r = c.get('https://api.example.com/v1', params={'k': 'getSecret(\"/secrets/api\")'});"
        " print(r.status_code, r.json())"
    )
    bundle = str(room.roots)
    done = room.run(sys.executable, "-c", code, SSL_CERT_FILE=bundle, REQUESTS_CA_BUNDLE=bundle)
    assert done.stdout == b"200 {'a': 1}\n", done.stderr
    assert f"GET /v1?k={VALUE} ".encode() in heads[-1]


class Git(Site):
    """A repository over smart HTTP, by git's own backend."""

    root: Path

    def do_GET(self) -> None:
        self._backend(b"")

    def do_POST(self) -> None:
        self._backend(self._chunks() if "chunked" in self.headers.get("Transfer-Encoding", "") else self._counted())

    def _counted(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _backend(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.root), "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command, "PATH_INFO": path, "QUERY_STRING": query, "REMOTE_USER": "me",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=environment, check=False)
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        status = next((value for name, value in fields if name == "Status"), "200 OK")
        self.send_response(int(status.split()[0]))
        for name, value in fields:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


def test_66_git_push_of_50_mb(desk: Desk, room: Room, tmp_path: Path) -> None:
    need("git")
    bare, work = tmp_path / "bare", tmp_path / "work"
    script = f"""
    git init -q --bare {bare}/repo.git && git -C {bare}/repo.git config http.receivepack true
    git init -q -b main {work} && cd {work} && git config user.name a && git config user.email a@b
    head -c 50000000 /dev/urandom > big && git add big && git commit -qm one
    """
    subprocess.run(["sh", "-ec", script], check=True, capture_output=True, env={**os.environ, "HOME": str(tmp_path)})
    heads = serve(desk, "git.example.com", kind=Git, root=bare)
    desk.secret("/secrets/git", VALUE, "https://git.example.com")
    pair = base64.b64encode(b'me:getSecret("/secrets/git")').decode()
    header = f"http.extraheader=Authorization: Basic {pair}"
    words = ["git", "-C", str(work), "-c", header, "push", "-q", "https://git.example.com/repo.git", "main"]
    done = room.run(*words, GIT_SSL_CAINFO=str(room.roots))
    assert done.returncode == 0, done.stderr
    hashes = [
        subprocess.run(["git", "-C", str(at), "rev-parse", "main"], capture_output=True, check=True).stdout
        for at in (work, bare / "repo.git")
    ]
    assert hashes[0] == hashes[1]
    sent = base64.b64encode(f"me:{VALUE}".encode())
    assert all(sent in head for head in heads)
    assert any(b"chunked" in head for head in heads)
