"""Hostile words through the public API (names, directories, users, variables), and one sandbox against another."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx2
import pytest

from kennel.wire.errors import KennelError

if TYPE_CHECKING:
    from pet import Pet

pytestmark = pytest.mark.root

NAMES = ["..", ".", "a/b", "../a", "a/../../b", "-a", "a-", "", "a" * 64, "A", "ä", "a\0b", "a\nb", "a b", "a%2fb",
         "sandbox-x.2", "$(id)", "a;id", "/etc", "~", "a\u202eb"]  # fmt: skip


@pytest.fixture(scope="module")
def neighbour(installation: Any, pet: Pet) -> Iterator[Pet]:
    """A second sandbox of the same project."""
    with installation.client() as client:
        sandbox = client.sandboxes.get("/sandboxes/neighbour").create()
        yield type(pet)(sandbox, installation.data)
        sandbox.destroy()


def folders(installation: Any) -> list[str]:
    return sorted(path.name for path in (Path(installation.data) / "node/sandboxes").iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_is_refused_before_anything_is_made(installation: Any, name: str) -> None:
    headers = {"authorization": f"Bearer {installation.key}"}
    base = f"{installation.url}/v1/projects/default/sandboxes"
    with httpx2.Client(headers=headers, trust_env=False) as http:
        made = http.post(base, json={"path": f"/sandboxes/{name}"})
        assert made.status_code == 400, made.text
        assert made.json()["code"] in ("VALIDATION_FAILED", "INVALID_PATH", "NAME_TOO_LONG")
        ran = http.post(f"{base}/{quote(name, safe='')}/exec", json={"argv": ["id"]})
        assert ran.status_code in (400, 404, 405), ran.text
        assert "uid=0" not in ran.text
        assert not name or name not in folders(installation)


WAYS = [
    "/proc/1/root/..",
    "/proc/1/cwd",
    "/tmp/way",
    "/tmp/way/var/tmp",
    "/proc/self/fd/3",
    "//",
    "/workspace/../../../..",
]


@pytest.mark.parametrize("cwd", WAYS)
def test_a_hostile_working_directory_stays_inside(pet: Pet, tmp_path: Path, cwd: str) -> None:
    canary = Path("/var/tmp") / f"kennel-canary-{uuid.uuid4().hex}"
    canary.write_text("seen")
    pet.run(["ln", "-sfn", "/proc/1/root/proc/1/root", "/tmp/way"])
    try:
        ran = pet.run(["sh", "-c", f"cat ./{canary.name} ./var/tmp/{canary.name} ../../../..{canary}"], cwd=cwd)
        seen = ran.out
    except KennelError as refused:
        seen = "" if refused.status in (400, 403, 404) else str(refused)
    finally:
        canary.unlink()
    assert seen == ""


@pytest.mark.parametrize(
    "user", ["65536", "4294967295", "-1", "0:65536", "root; id", "../root", "user\nroot", "no-such-user"]
)
def test_a_hostile_user_is_refused(pet: Pet, user: str) -> None:
    with pytest.raises(KennelError) as caught:
        pet.sandbox.exec(argv=["id"], user=user)
    assert caught.value.status in (400, 403, 404)


def test_variables_do_not_reach_the_first_process(pet: Pet) -> None:
    pet.put("/tmp/evil.py", b"open('/tmp/loaded', 'w')")
    hostile = {
        "LD_PRELOAD": "/tmp/evil.so",
        "PYTHONPATH": "/tmp",
        "PYTHONSTARTUP": "/tmp/evil.py",
        "BASH_ENV": "/tmp/evil",
    }
    seen = pet.sandbox.exec(argv=["sh", "-c", "tr '\\0' '\\n' < /proc/1/environ; true"], env=hostile)
    assert "evil" not in seen.stdout
    assert pet.run(["test", "-e", "/tmp/loaded"]).code == 1


@pytest.mark.parametrize("name", ["A=B", "", "A\0", "="])
def test_a_hostile_variable_name_is_refused(pet: Pet, name: str) -> None:
    with pytest.raises(KennelError) as caught:
        pet.sandbox.exec(argv=["env"], env={name: "x"})
    assert caught.value.status == 400


def test_two_sandboxes_share_no_id_and_no_namespace(pet: Pet, neighbour: Pet) -> None:
    ranges = sorted((walls.first_id, walls.first_id + 65536) for walls in (pet, neighbour))
    assert ranges[0][1] <= ranges[1][0]
    look = ["sh", "-c", "for k in cgroup ipc mnt net pid user uts; do readlink /proc/self/ns/$k; done"]
    assert not set(pet.run(look).out.split()) & set(neighbour.run(look).out.split())


def test_one_sandbox_cannot_reach_another(pet: Pet, neighbour: Pet) -> None:
    word = uuid.uuid4().hex
    neighbour.put(f"/tmp/{word}", word.encode())
    neighbour.put(f"/workspace/{word}", word.encode())
    serve = (
        "import os, socket, threading, time\n"
        "if os.fork(): raise SystemExit\n"
        "os.setsid()\n"
        f"a = socket.socket(socket.AF_UNIX); a.bind('\\0{word}'); a.listen()\n"
        "b = socket.create_server(('0.0.0.0', 4242))\n"
        "for n in range(3): os.close(n)\n"
        "def give(s):\n"
        "    while True:\n"
        f"        c, _ = s.accept(); c.send(b'{word}'); c.close()\n"
        "for s in (a, b): threading.Thread(target=give, args=(s,), daemon=True).start()\n"
        "time.sleep(20)\n"
    )
    assert neighbour.run(["/usr/bin/python3", "-c", serve]).code == 0
    reach = (
        "import socket\n"
        f"ways = [(socket.AF_UNIX, '\\0{word}')] + [(socket.AF_INET, (h, 4242)) for h in ('127.0.0.1', '10.0.0.1')]\n"
        "for family, address in ways:\n"
        "    s = socket.socket(family); s.settimeout(1)\n"
        # The gateway answers for every address; only the neighbour knows the word.
        f"    try: s.connect(address); print('reached' if s.recv(64) == b'{word}' else 'no')\n"
        "    except OSError: print('no')\n"
    )
    own = neighbour.run(["/usr/bin/python3", "-c", reach.replace("'10.0.0.1'", "'127.0.0.1'")]).out
    assert set(own.split()) == {"reached"}, "the service of the neighbour must be there to be missed"
    assert set(pet.run(["/usr/bin/python3", "-c", reach]).out.split()) == {"no"}
    assert pet.run(["find", "/", "-xdev", "-name", word]).out == ""
    assert pet.run(["ls", f"/workspace/{word}", f"/tmp/{word}"]).code != 0


def test_a_key_of_one_project_does_not_open_another(installation: Any, pet: Pet) -> None:
    name = f"p{uuid.uuid4().hex[:8]}"
    with installation.client() as client:
        client.projects.create(name)
        token = client.keys.create(project=name, scopes=["read", "exec", "lifecycle"], name="attack").token
    for path in ("sandboxes/attacker", "sandboxes/attacker/exec"):
        with httpx2.Client(headers={"authorization": f"Bearer {token}"}, trust_env=False) as http:
            url = f"{installation.url}/v1/projects/default/{path}"
            answer = http.post(url, json={"argv": ["id"]}) if path.endswith("exec") else http.get(url)
            assert answer.status_code in (403, 404), answer.text
            assert "uid=0" not in answer.text
