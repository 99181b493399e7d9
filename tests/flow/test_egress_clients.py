"""Attack 66: unmodified programs through a real gateway: curl, wget, git, Node, Python, Java."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from egress_room import VALUE, Room, need
from egress_world import Heard, reply

if TYPE_CHECKING:
    from egress_fixtures import Desk

pytest_plugins = ["egress_fixtures"]
pytestmark = pytest.mark.root

HOST = "files.example.com"


@pytest.fixture
def room(desk: Desk, tmp_path: Path) -> Room:
    site: dict[str, bytes] = {"/a.json": json.dumps({"hello": "world"}).encode(), "/big": os.urandom(3_000_000)}

    def serve(heard: Heard, link: socket.socket) -> None:
        while (request := heard.read_request(link)) is not None:
            path = request.split(b" ")[1].decode().partition("?")[0]
            found = site.get(path)
            link.sendall(reply(found) if found is not None else reply(b"none", status="404 Not Found"))

    desk.world.site(HOST, handler=serve)
    made = Room(desk.box, tmp_path)
    made.site = site  # type: ignore[attr-defined]
    return made


def test_66_curl(desk: Desk, room: Room) -> None:
    need("curl")
    url, roots = f"https://{HOST}/a.json", str(room.roots)
    for words in (["--http1.1"], ["--http2"], ["-4"], ["--retry", "0", "-H", "Expect: 100-continue", "-d", "x" * 5000]):
        done = room.run("curl", "-sS", "--cacert", roots, *words, url)
        assert json.loads(done.stdout) == {"hello": "world"}, done.stderr
    got = room.run("curl", "-sS", "--cacert", roots, f"https://{HOST}/big")
    assert got.stdout == room.site["/big"]  # type: ignore[attr-defined]
    desk.policy({"ruleKey": "no", "verdict": "deny", "match": {"hosts": [HOST]}})
    denied = room.run("curl", "-sS", "--cacert", roots, url)
    assert json.loads(denied.stdout)["ruleKey"] == "no"
    untrusted = room.run("curl", "-sS", url)
    assert untrusted.returncode == 60


def test_66_wget_and_python(room: Room) -> None:
    need("wget")
    done = room.run("wget", "-q", "-O", "-", f"--ca-certificate={room.roots}", f"https://{HOST}/a.json")
    assert done.stdout == b'{"hello": "world"}', done.stderr
    code = f"import urllib.request as u; print(u.urlopen('https://{HOST}/a.json').read().decode())"
    done = room.run("/usr/bin/python3", "-c", code, SSL_CERT_FILE=str(room.roots))
    assert done.stdout == b'{"hello": "world"}\n', done.stderr


def test_66_node_fetch_with_a_secret(desk: Desk, room: Room) -> None:
    need("node")
    desk.secret("/secrets/token", VALUE, f"https://{HOST}")
    code = (
        "const r = await fetch(process.argv[1], {headers: {authorization: 'Bearer ' + process.env.TOKEN}});"
        "console.log(r.status, await r.text())"
    )
    words = ["node", "--input-type=module", "-e", code, f"https://{HOST}/a.json"]
    done = room.run(*words, NODE_EXTRA_CA_CERTS=str(room.roots), TOKEN='getSecret("/secrets/token")')
    assert done.stdout == b'200 {"hello": "world"}\n', done.stderr
    assert any(f"authorization: Bearer {VALUE}".encode() in request for request in desk.world.servers[-1].requests)


def test_66_git_clone_with_a_placeholder_in_basic(desk: Desk, room: Room, tmp_path: Path) -> None:
    need("git")
    source = tmp_path / "source"
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *identity, *words], check=True, capture_output=True, env=environment, cwd=tmp_path)

    git("init", str(source))
    (source / "file.txt").write_text("content")
    git("-C", str(source), "add", ".")
    git("-C", str(source), "commit", "-m", "one")
    git("-C", str(source), "update-server-info")
    for file in (source / ".git").rglob("*"):
        if file.is_file():
            room.site[f"/repo.git/{file.relative_to(source / '.git')}"] = file.read_bytes()  # type: ignore[attr-defined]
    desk.secret("/secrets/git", VALUE, f"https://{HOST}")
    pair = base64.b64encode(b'x-access-token:getSecret("/secrets/git")').decode()
    header = f"http.https://{HOST}/.extraheader=AUTHORIZATION: basic {pair}"
    done = room.run("git", "-c", header, "clone", f"https://{HOST}/repo.git", "copy", GIT_SSL_CAINFO=str(room.roots))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "copy" / "file.txt").read_text() == "content"
    sent = base64.b64encode(f"x-access-token:{VALUE}".encode())
    requests = desk.world.servers[-1].requests
    assert requests
    assert all(sent in request for request in requests)


@pytest.mark.full
def test_66_java(room: Room, tmp_path: Path) -> None:
    need("java")
    need("keytool")
    store = str(tmp_path / "trust.p12")
    words = ["-importcert", "-noprompt", "-alias", "k", "-file", str(room.roots), "-storetype", "PKCS12"]
    subprocess.run(["keytool", *words, "-keystore", store, "-storepass", "changeit"], check=True, capture_output=True)
    (tmp_path / "Get.java").write_text(
        "import java.net.*; import java.net.http.*; public class Get {"
        " public static void main(String[] a) throws Exception {"
        " System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(),"
        " HttpResponse.BodyHandlers.ofString()).body()); } }"
    )
    options = f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword=changeit"
    done = room.run("java", "Get.java", f"https://{HOST}/a.json", JAVA_TOOL_OPTIONS=options)
    assert b'{"hello": "world"}' in done.stdout, done.stderr
