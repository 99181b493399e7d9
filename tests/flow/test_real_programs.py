"""Real programs as people use them: an editor, git, pip and npm with servers inside, a large file, a long silence."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from installation import Installation
from kennel import Sandbox, Terminal

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def box(installation: Installation) -> Iterator[Sandbox]:
    with installation.client() as itx:
        made = itx.sandboxes.get("/sandboxes/programs").create(instance_type="standard-2")
        yield made
        made.destroy()


def until(terminal: Terminal, text: bytes) -> bytes:
    """Reads on until the text is there."""
    got = b""
    for data in terminal:
        got += data
        if text in got:
            return got
    raise AssertionError(got)


def test_vim_in_a_terminal(box: Sandbox) -> None:
    if box.exec("command -v vim").exit_code:
        pytest.skip("this machine has no vim to bring along")
    box.write_file("poem.txt", "first\nsecond\n")
    with box.terminal("vim", argv=["vim", "-u", "NONE", "-i", "NONE", "poem.txt"], cols=90, rows=20) as terminal:
        until(terminal, b"poem.txt")
        terminal.write(b"Gothird \xc3\xa9\x1b")
        until(terminal, "third é".encode())
        terminal.resize(120, 35)
        until(terminal, b"\x1b[34;1H")  # vim learns of it by a signal, and draws lines down to there
        terminal.write(b":set columns? lines?\r")
        assert b"lines=35" in until(terminal, b"lines=")
    # The socket is gone, and vim is not: the change is still unsaved in it.
    assert box.read_file("poem.txt").content == "first\nsecond\n"
    with box.terminal("vim", since=0) as terminal:
        terminal.write(b"\r:1s/first/FIRST/\r:wq\r")
        for _ in terminal:
            continue
    assert terminal.exit is not None
    assert terminal.exit.code == 0
    assert box.read_file("poem.txt").content == "FIRST\nsecond\nthird é\n"


INDEX = r"""
import base64, hashlib, io, os, subprocess, zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
os.makedirs('/srv/web/simple/greeting', exist_ok=True)
os.chdir('/srv/web')
files = {
    'greeting.py': "def main():\n    print('hello from the index')\n",
    'greeting-1.2.dist-info/METADATA': 'Metadata-Version: 2.1\nName: greeting\nVersion: 1.2\n',
    'greeting-1.2.dist-info/WHEEL': 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
    'greeting-1.2.dist-info/entry_points.txt': '[console_scripts]\ngreet = greeting:main\n',
}
record = ''.join(
    f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},{len(text)}\n"
    for name, text in files.items()
) + 'greeting-1.2.dist-info/RECORD,,\n'
wheel = 'greeting-1.2-py3-none-any.whl'
with zipfile.ZipFile(f'simple/greeting/{wheel}', 'w') as out:
    for name, text in {**files, 'greeting-1.2.dist-info/RECORD': record}.items():
        out.writestr(name, text)
digest = hashlib.sha256(open(f'simple/greeting/{wheel}', 'rb').read()).hexdigest()
open('simple/greeting/index.html', 'w').write(f'<a href="{wheel}#sha256={digest}">{wheel}</a>')
git = ['git', '-c', 'user.name=t', '-c', 'user.email=t@t', '-c', 'init.defaultBranch=main']
os.makedirs('seed')
open('seed/requirements.txt', 'w').write('greeting==1.2\n')
subprocess.run([*git, 'init', '-q', 'seed'], check=True)
subprocess.run([*git, '-C', 'seed', 'add', '.'], check=True)
subprocess.run([*git, '-C', 'seed', 'commit', '-qm', 'first'], check=True)
subprocess.run([*git, 'clone', '-q', '--bare', 'seed', 'app.git'], check=True)
subprocess.run([*git, '-C', 'app.git', 'update-server-info'], check=True)
print('serving', flush=True)
ThreadingHTTPServer(('127.0.0.1', 8098), SimpleHTTPRequestHandler).serve_forever()
"""


def test_git_clone_and_pip_install_from_servers_inside(box: Sandbox) -> None:
    server = box.start_process(argv=["python3", "-c", INDEX])
    server.wait_for_port(8098, 30)
    cloned = box.exec("git clone -q http://127.0.0.1:8098/app.git app && cat app/requirements.txt")
    assert (cloned.stdout, cloned.exit_code) == ("greeting==1.2\n", 0), cloned.stderr
    # The pip that is there installs into the environment; putting one into it takes ten times as long.
    shared = box.exec("python3 -m pip --version").exit_code == 0
    made = box.exec(f"python3 -m venv {'--without-pip' if shared else ''} env", timeout=60)
    assert made.exit_code == 0, made.stderr
    pip = "python3 -m pip --python env/bin/python" if shared else "env/bin/python -m pip"
    quiet = "--disable-pip-version-check --no-cache-dir --index-url http://127.0.0.1:8098/simple"
    installed = box.exec(f"{pip} install {quiet} -r app/requirements.txt", timeout=90)
    assert installed.exit_code == 0, installed.stderr
    assert box.exec("env/bin/greet").stdout == "hello from the index\n"
    missing = box.exec(f"{pip} install {quiet} no-such-thing", timeout=60)
    assert missing.exit_code == 1
    assert "No matching distribution" in missing.stderr
    server.kill()


REGISTRY = r"""
import base64, hashlib, io, json, os, tarfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
BASE = 'http://127.0.0.1:8097'
made = io.BytesIO()
with tarfile.open(fileobj=made, mode='w:gz') as archive:
    manifest = json.dumps({'name': 'greeting', 'version': '1.2.0', 'main': 'index.js', 'bin': {'greet': 'bin.js'}})
    program = "#!/usr/bin/env node\nconsole.log(require('./index.js'))\n"
    for name, text in (('package.json', manifest), ('index.js', "module.exports = 'hello'\n"), ('bin.js', program)):
        member = tarfile.TarInfo(f'package/{name}')
        member.size, member.mode = len(text), 0o755
        archive.addfile(member, io.BytesIO(text.encode()))
package = made.getvalue()
integrity = 'sha512-' + base64.b64encode(hashlib.sha512(package).digest()).decode()
dist = {'tarball': f'{BASE}/greeting/-/greeting-1.2.0.tgz', 'integrity': integrity}
about = {'name': 'greeting', 'dist-tags': {'latest': '1.2.0'}, 'versions': {
    '1.2.0': {'name': 'greeting', 'version': '1.2.0', 'bin': {'greet': 'bin.js'}, 'dist': dist}}}
class Registry(BaseHTTPRequestHandler):
    def do_GET(self):
        found = {'/greeting': json.dumps(about).encode(), '/greeting/-/greeting-1.2.0.tgz': package}.get(self.path)
        self.send_response(200 if found else 404)
        self.send_header('content-length', str(len(found or b'{}')))
        self.end_headers()
        self.wfile.write(found or b'{}')
    def log_message(self, *words): pass
os.makedirs('/workspace/site', exist_ok=True)
with open('/workspace/site/package.json', 'w') as file:
    json.dump({'name': 'site', 'version': '1.0.0', 'dependencies': {'greeting': '^1.0.0'}}, file)
ThreadingHTTPServer(('127.0.0.1', 8097), Registry).serve_forever()
"""


def test_npm_ci_from_a_registry_inside(box: Sandbox) -> None:
    if box.exec("command -v npm").exit_code:
        pytest.skip("this machine has no npm to bring along")
    registry = box.start_process(argv=["python3", "-c", REGISTRY])
    registry.wait_for_port(8097, 30)
    quiet = "--registry http://127.0.0.1:8097 --no-audit --no-fund --no-update-notifier"
    locked = box.exec(f"npm install --package-lock-only {quiet}", cwd="/workspace/site", timeout=90)
    assert locked.exit_code == 0, locked.stderr
    clean = box.exec(f"npm ci {quiet}", cwd="/workspace/site", timeout=90)
    assert clean.exit_code == 0, clean.stderr
    assert box.exec("npx --no-install greet", cwd="/workspace/site", timeout=60).stdout == "hello\n"
    registry.kill()


def upload(box: Sandbox, folder: Path, size: int) -> None:
    """A file of this machine, up and down, by its name at each end."""
    source, back = folder / "source", folder / "back"
    expected = hashlib.sha256()
    piece = bytes(range(256)) * 4096
    with source.open("wb") as file:
        for number in range(size // MIB):
            part = number.to_bytes(8, "big") + piece[8:]
            expected.update(part)
            file.write(part)
    assert box.upload_file(source, "large").size == size
    assert box.exec("sha256sum < large | cut -c-64", timeout=60).stdout.strip() == expected.hexdigest()
    assert box.download_file("large", back) == size
    found = hashlib.sha256()
    with back.open("rb") as file:
        while part := file.read(MIB):
            found.update(part)
    assert found.hexdigest() == expected.hexdigest()
    box.delete_file("large")


def test_a_file_goes_up_and_comes_down(box: Sandbox, tmp_path: Path) -> None:
    upload(box, tmp_path, 64 * MIB)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_file_of_a_gibibyte_goes_up_and_comes_down(box: Sandbox, tmp_path: Path) -> None:
    upload(box, tmp_path, 1024 * MIB)


def silent(box: Sandbox, installation: Installation, seconds: int) -> None:
    """Commands that say nothing for a long time, by every way to wait for one."""
    said: dict[str, str] = {}
    command = f"sleep {seconds}; echo over; exit 3"

    def waiting() -> None:
        with installation.client() as mine:
            done = mine.sandboxes.get(box.path).exec(command)
            said["exec"] = f"{done.stdout}{done.exit_code}"

    def following() -> None:
        with installation.client() as mine, mine.sandboxes.get(box.path).exec_stream(command) as stream:
            text = "".join(str(event.data) for event in stream if event.type == "stdout")
            said["events"] = f"{text}{stream.exit.exit_code if stream.exit else None}"

    def interacting() -> None:
        with installation.client() as mine, mine.sandboxes.get(box.path).interact(command) as open_socket:
            text = b"".join(event.data for event in open_socket).decode()  # type: ignore[misc]
            said["socket"] = f"{text}{open_socket.exit.exit_code if open_socket.exit else None}"

    def in_a_session() -> None:
        with installation.client() as mine:
            session = mine.sandboxes.get(box.path).create_session("silent")
            done = session.exec(f"sleep {seconds}; echo over; (exit 3)")
            said["session"] = f"{done.stdout}{done.exit_code}"

    def in_the_background() -> None:
        with installation.client() as mine:
            done = mine.sandboxes.get(box.path).start_process(command).wait_for_exit()
            said["process"] = f"over\n{done.exit_code}"

    began = time.monotonic()
    threads = [
        threading.Thread(target=work) for work in (waiting, following, interacting, in_a_session, in_the_background)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 60)
    assert said == dict.fromkeys(("exec", "events", "socket", "session", "process"), "over\n3")
    assert time.monotonic() - began >= seconds
    box.delete_session("silent")


def test_a_silent_command(box: Sandbox, installation: Installation) -> None:
    silent(box, installation, 2)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_command_that_is_silent_for_fifteen_minutes(box: Sandbox, installation: Installation) -> None:
    """Reports 16 and 18, field 15: what was waited for for long was given up on the way."""
    box.set_sleep_after(30)
    silent(box, installation, 15 * 60)
