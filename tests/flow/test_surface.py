"""What the peers' own suites check and nothing else here does, through the whole installation and the SDK."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from installation import Installation
from kennel import Kennel, KennelError, Sandbox
from patience import within


@pytest.fixture(scope="module")
def box(installation: Installation) -> Iterator[Sandbox]:
    with installation.client() as itx:
        yield itx.sandboxes.get("/sandboxes/surface").create(instance_type="standard-2", env={"A": "sandbox", "B": "b"})


def at_once(work: Callable[[int], object], count: int) -> list[object]:
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(work, range(count)))


# --- commands


def test_variables_of_every_level_and_none_leaks(box: Sandbox, itx: Kennel) -> None:
    """Reports 25 and 26: variables and directories of one call were ignored, or stayed; null crashed."""
    said = "echo $A-$B-$C; pwd"
    session = box.create_session("levels", env={"A": "session"})
    assert session.exec(said).stdout == "session-b-\n/workspace\n"
    assert session.exec(said, env={"A": "call", "C": "call"}, cwd="/tmp").stdout == "call-b-call\n/tmp\n"
    assert session.exec(said).stdout == "session-b-\n/workspace\n"
    session.exec("cd /usr; export C=kept")
    assert session.exec(said, cwd="/workspace").stdout == "session-b-kept\n/workspace\n"
    assert session.exec(said).stdout == "session-b-kept\n/usr\n"
    session.delete()
    assert box.exec(said, env={"A": "call"}, cwd="/").stdout == "call-b-\n/\n"
    streamed = box.exec_stream(said, env={"B": "stream"}, cwd="/tmp")
    assert "".join(str(event.data) for event in streamed if event.type == "stdout") == "sandbox-stream-\n/tmp\n"
    process = box.start_process(said, env={"C": "process"}, cwd="/usr")
    process.wait_for_exit(20)
    assert process.get_logs().stdout == "sandbox-b-process\n/usr\n"
    assert box.exec(said).stdout == "sandbox-b-\n/workspace\n"
    nothing = itx.sandboxes.get("/sandboxes/surface-null").create(env={"A": None, "B": "b"})  # type: ignore[dict-item]
    assert nothing.exec('echo "${A-unset}$B${C-unset}"', env={"C": None}).stdout == "unsetbunset\n"  # type: ignore[dict-item]
    nothing.set_env_vars({"B": None})
    assert nothing.exec('echo "${B-unset}"').stdout == "unset\n"
    nothing.destroy()


def test_a_working_directory_that_is_gone_is_said_and_the_next_call_works(itx: Kennel) -> None:
    """Report 23: commands failed without a reason once their directory was gone or another thing."""
    pet = itx.sandboxes.get("/sandboxes/surface-cwd").create()
    session = pet.create_session("inside")
    session.exec("mkdir -p gone/deep; cd gone/deep")
    for breaking in ("rm -rf /workspace", "mv /workspace /elsewhere", "rmdir /workspace; ln -sT /nowhere /workspace"):
        pet.exec(f"{breaking}; true", cwd="/")
        assert pet.exec("pwd; ls -A").stdout == "/workspace\n", breaking
    pet.exec("ln -s /nowhere link; echo > file")
    for wrong in ("/workspace/gone/deep", "/workspace/link", "/workspace/file"):
        with pytest.raises(KennelError) as caught:
            pet.exec("pwd", cwd=wrong)
        assert (caught.value.code, caught.value.admitted) == ("INVALID_PROCESS_CWD", "no")
        with pytest.raises(KennelError) as caught:
            session.exec("pwd", cwd=wrong)
        assert (caught.value.code, caught.value.admitted) == ("INVALID_PROCESS_CWD", "no")
    assert pet.exec("pwd; echo > here", cwd="/proc").stdout == "/proc\n"
    assert session.exec("cd /workspace && pwd").stdout == "/workspace\n"
    pet.destroy()


def test_a_command_that_hangs_holds_up_nothing_else(box: Sandbox, installation: Installation) -> None:
    """Reports 2, 3 and 5: one stuck command took the whole sandbox with it."""
    stuck = box.create_session("stuck")
    box.create_session("well")

    def hang(_: int) -> float:
        with installation.client() as mine:
            began = time.monotonic()
            found = mine.sandboxes.get(box.path).exec("trap '' TERM INT; sleep 1000", session_id=stuck.id, timeout=1.5)
            assert found.timed_out
            return time.monotonic() - began

    thread = threading.Thread(target=hang, args=(0,))
    thread.start()
    began = time.monotonic()
    for _ in range(10):
        assert box.exec("echo well").stdout == "well\n"
        assert box.exec("echo well", session_id="well").stdout == "well\n"
    assert time.monotonic() - began < within(3)
    thread.join(30)
    assert not thread.is_alive()
    assert stuck.exec("echo well").stdout == "well\n"
    for name in ("stuck", "well"):
        box.delete_session(name)


def test_twenty_sessions_at_once_do_not_mix(box: Sandbox, installation: Installation) -> None:
    """Reports 12, 38 and 40: parallel calls mixed their output; callers shared one default shell."""

    def one(number: int) -> str:
        with installation.client() as mine:
            session = mine.sandboxes.get(box.path).create_session(f"many-{number}")
            session.exec(f"export N={number}; cd /tmp; f() {{ echo f$N; }}")
            got = "".join(session.exec("for i in $(seq 50); do echo $N; done; f").stdout for _ in range(3))
            session.delete()
            return got

    assert at_once(one, 20) == [(f"{n}\n" * 50 + f"f{n}\n") * 3 for n in range(20)]
    assert box.exec("echo ${N-none}; pwd").stdout == "none\n/workspace\n"

    def same(_: int) -> str:
        with installation.client() as mine:
            try:
                mine.sandboxes.get(box.path).create_session("one-of-many")
            except KennelError as failure:
                return failure.code
        return "made"

    assert sorted(map(str, at_once(same, 8))) == ["SESSION_ALREADY_EXISTS"] * 7 + ["made"]
    box.delete_session("one-of-many")
    box.create_session("one-of-many").delete()


def test_words_reach_a_program_as_they_are(box: Sandbox) -> None:
    """Report 21: quotes and control characters were lost on the way to a program."""
    every = "".join(map(chr, range(1, 256)))
    words = [every, "", "'", '"', "\\", "$(id)`id`", "a\nb", "*", "-n", " lead and trail ", "é🐕"]
    printed = box.exec(argv=["printf", "%s\\0", *words], encoding="base64").stdout
    assert base64.b64decode(printed).split(b"\0")[:-1] == [word.encode() for word in words]
    for word in words[1:]:
        box.write_file("quoted", word)
        assert box.read_file("quoted").content == word


def test_a_stream_that_is_left_at_its_very_end_is_left_well(box: Sandbox) -> None:
    """Report 15: leaving while it completes, and coming back at once, broke the stream's machinery."""

    def one(number: int) -> None:
        with box.exec_stream(f"echo {number}; exit 3", linger=0 if number % 2 else 5) as stream:
            for event in stream:
                if event.type == ("stdout", "exit")[number % 2]:
                    break

    at_once(one, 16)
    assert box.exec("echo well").stdout == "well\n"


def test_many_readers_of_one_process_see_the_same(box: Sandbox, installation: Installation) -> None:
    """Field 19: one slow or gone reader held up the others."""
    process = box.start_process("for i in $(seq 1 150); do echo $i; sleep 0.003; done", process_id="watched-by-many")
    expected = "".join(f"{n}\n" for n in range(1, 151)).encode()

    def one(number: int) -> bytes:
        with installation.client() as mine:
            followed = mine.sandboxes.get(box.path).get_process(process.id)
            assert followed is not None
            got = b""
            with followed.stream_logs() as events:
                for event in events:
                    got += event.data
                    if number == 0:
                        return expected  # one leaves at once
                    if number == 1:
                        time.sleep(0.01)  # and one is slow
            return got

    assert at_once(one, 6) == [expected] * 6


# --- lifecycle


def test_one_that_is_kept_alive_stays_until_it_need_not(itx: Kennel) -> None:
    """Report 61: a sandbox that was never to sleep slept amid its work."""
    pet = itx.sandboxes.get("/sandboxes/surface-kept").create(sleep_after=1, keep_alive=True)
    pet.start_process("sleep 100")
    time.sleep(2)
    assert pet.info().running
    pet.set_keep_alive(False)
    end = time.monotonic() + within(8)
    while pet.info().running:
        assert time.monotonic() < end, "it did not fall asleep"
        time.sleep(0.1)
    pet.destroy()


def test_backups_at_once_are_all_whole(itx: Kennel) -> None:
    """Section 7, backup: concurrent ones, odd names, an empty directory, unknown ones."""
    pet = itx.sandboxes.get("/sandboxes/surface-backups").create()
    pet.exec("mkdir -p 'a b/ü🐕' empty; echo 1 > 'a b/ü🐕/x'; head -c 1000000 /dev/urandom > big")
    before = pet.exec("find . | sort | tr '\\n' ,; sha256sum big").stdout
    made = at_once(lambda number: pet.create_backup(name=f"b-{number}"), 4)
    assert len({backup.id for backup in made}) == 4  # type: ignore[attr-defined]
    pet.exec("rm -rf ./*; echo new > other")
    pet.restore_backup(made[2])  # type: ignore[arg-type]
    assert pet.exec("find . | sort | tr '\\n' ,; sha256sum big").stdout == before
    pet.exec("echo after > big")
    pet.restore_backup(made[0])  # type: ignore[arg-type]
    assert pet.exec("find . | sort | tr '\\n' ,; sha256sum big").stdout == before
    for wrong in ("snap-00000000", "../../etc", "x" * 300, "%2e%2e"):
        with pytest.raises(KennelError) as caught:
            pet.restore_backup(wrong)
        assert caught.value.status in (400, 404), wrong
        assert pet.exec("sha256sum big").stdout in before
    pet.destroy()


# --- files


KINDS = (
    "txt md csv tsv json xml html css js ts py sh c toml yaml svg png jpg gif webp bmp ico tiff mp3 wav ogg mp4 webm "
    "avi pdf doc docx xls xlsx ppt pptx odt zip gz bz2 xz zst tar 7z so bin exe wasm class jar sqlite woff2 ttf"
)


def test_fifty_kinds_of_files_come_back_byte_by_byte(box: Sandbox) -> None:
    """Report 62: documents were taken for text and damaged."""
    assert len(KINDS.split()) >= 50
    for kind in KINDS.split():
        for content in (b"PK\x03\x04" + bytes(range(256)) + os.urandom(300), "text é\r\n".encode()):
            box.write_file(f"kinds/x.{kind}", content)
            assert box.read_file(f"kinds/x.{kind}").data == content, kind
    box.delete_file("kinds", recursive=True)


def test_what_was_written_is_there_at_once(box: Sandbox) -> None:
    """Field 29: an upload was acknowledged before anyone could see it."""

    def one(number: int) -> bool:
        content = f"{number} {os.urandom(20_000).hex()}"
        box.write_file(f"seen/{number}", content)
        printed = box.exec(f"cat seen/{number}").stdout
        return printed == content and f"seen/{number}" in str(box.list_files("seen"))

    assert all(at_once(one, 12))
    assert len(box.list_files("seen")) == 12
    box.delete_file("seen", recursive=True)


def test_watching_from_the_first_look_to_the_last(box: Sandbox) -> None:
    """Section 7, watch: unchanged, changed over a gap, every kind, include, exclude, a missing path, close."""
    box.exec("mkdir -p looked/node_modules looked/.git; echo 1 > looked/a.txt")
    version = box.check_changes("looked").version
    assert box.check_changes("looked", since=version).status == "unchanged"
    box.exec("echo 2 > looked/a.txt; rm -f looked/none; echo > looked/b.txt; rm looked/b.txt")
    changes = box.check_changes("looked", since=version)
    assert (changes.status, "/workspace/looked/a.txt" in changes.paths) == ("changed", True)
    assert box.check_changes("looked", since="0:1").status == "resync"
    with pytest.raises(KennelError) as caught:
        next(iter(box.watch("looked/missing")))
    assert (caught.value.code, caught.value.status) == ("FILE_NOT_FOUND", 404)
    with box.watch("looked", include=["*.txt"]) as events:
        box.exec("cd looked; echo > x.log; echo > n.txt; mv n.txt m.txt; rm m.txt; echo > last.txt")
        seen = []
        for event in events:
            seen.append((event.event_type, os.path.basename(event.path)))
            if event.path.endswith("last.txt"):
                break
    assert all(name.endswith(".txt") for _, name in seen), seen
    with box.watch("looked") as events:
        box.exec("cd looked; echo > node_modules/x; echo > .git/x; echo > end.log")
        names = []
        for event in events:
            names.append(event.path.removeprefix("/workspace/looked/"))
            if names[-1] == "end.log":
                break
    assert names == ["end.log"] or set(names) == {"end.log"}, names
    box.delete_file("looked", recursive=True)


def test_a_clone_that_makes_no_sense_is_refused(box: Sandbox) -> None:
    """Section 7, git: a bad time or depth is refused before anything runs."""
    for words in ({"depth": 0}, {"depth": -1}, {"timeout": 0}, {"timeout": float("nan")}):
        with pytest.raises(KennelError) as caught:
            box.git_checkout("http://127.0.0.1:9/never.git", target_dir="never", **words)  # type: ignore[arg-type]
        assert (caught.value.code, caught.value.status) == ("VALIDATION_FAILED", 400), words
    assert not box.exists("never")


# --- the questions an agent asks


def test_an_agents_day(box: Sandbox) -> None:
    """Section 7, the harness's levels 1 to 5: sizes, characters, many files, loops, background, many calls."""
    big = os.urandom(10_000_000)
    box.write_file("day/random", big)
    assert box.exec("sha256sum < day/random | cut -c-64").stdout.strip() == hashlib.sha256(big).hexdigest()
    assert len(box.exec("head -c 3750000 day/random | base64 -w0").stdout) == 5_000_000
    deep = "[" * 200 + "]" * 200
    box.write_file("day/deep.json", deep)
    assert box.exec("python3 -c 'import json; print(json.load(open(\"day/deep.json\")))'").stdout == deep + "\n"
    words = "🐕‍🦺 漢字かな 한국어 עברית العربية é ñ ￿ \u202eRTL\u202c"
    box.write_file("day/words", words)
    assert (box.read_file("day/words").content, box.exec("cat day/words").stdout) == (words, words)
    assert box.exec(f"printf %s '{words}'").stdout == words
    box.exec("mkdir -p day/many; cd day/many; for i in $(seq 500); do echo $i > f$i; done")
    assert len(box.list_files("day/many")) == 500
    assert box.exec("yes | head -n 50000").stdout == "y\n" * 50_000
    assert box.exec("seq 10000 | sort -r | awk '{s+=$1} END {print s}' | cat | tac").stdout == "50005000\n"
    assert box.exec("sleep 30 & echo $!").stdout.strip().isdigit()
    assert box.exec("kill -USR1 $$").signal == "SIGUSR1"
    assert box.exec("cat none.txt").stderr.endswith("No such file or directory\n")
    for number in range(100):
        assert box.exec(f"echo {number}").stdout == f"{number}\n"
    for number in range(50):
        box.write_file("day/again", str(number))
        assert box.read_file("day/again").content == str(number)
    at_once(lambda number: box.write_file(f"day/parallel/{number}", str(number)), 50)
    assert box.exec("cat day/parallel/* | wc -c").stdout.strip() == "90"
    sentinel = json.dumps({"random": hashlib.sha256(big).hexdigest()})
    box.write_file("day/sentinel", sentinel)
    box.sleep()
    assert box.read_file("day/sentinel").content == sentinel
    assert box.exec("sha256sum < day/random | cut -c-64").stdout.strip() == hashlib.sha256(big).hexdigest()
    assert len(box.list_files("day/many")) == 500
    box.delete_file("day", recursive=True)
