"""Background processes through the whole installation: handles, waits, restarts of control, sleep, the command line."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from installation import Installation
from kennel import Kennel, KennelError, Sandbox


@pytest.fixture(scope="module")
def box(installation: Installation) -> Iterator[Sandbox]:
    with installation.client() as itx:
        yield itx.sandboxes.get("/sandboxes/processes").create(env={"FROM": "sandbox"})


def test_a_process_from_start_to_end(box: Sandbox, installation: Installation) -> None:
    process = box.start_process("echo $FROM $OWN; sleep 0.3; echo bye >&2; exit 5", env={"OWN": "call"})
    assert process.pid
    assert process.get_status().status == "running"
    assert process.wait_for_log("sandbox call", 10).stream == "stdout"
    done = process.wait_for_exit(10)
    assert (done.status, done.exit_code) == ("exited", 5)
    logs = process.get_logs()
    assert (logs.stdout, logs.stderr, logs.truncated) == ("sandbox call\n", "bye\n", False)
    assert process.kill().exit_code == 5
    assert process.id in [one.id for one in box.list_processes()]
    told = [e["payload"] for e in installation.events(box.path) if e["type"] == "sandbox/process-started"]
    assert told[0]["processId"] == process.id


def ends(installation: Installation, box: Sandbox, count: int, *names: str) -> list[dict[str, object]]:
    """What the log says of how these ended, in the order of `names`, once there are so many."""
    until = time.monotonic() + 20
    while True:
        told = [e["payload"] for e in installation.events(box.path) if e["type"] == "sandbox/process-ended"]
        found = [one for name in names for one in told if one["processId"] == name]
        if len(found) >= count:
            return found
        assert time.monotonic() < until, told
        time.sleep(0.1)


def test_the_log_says_how_a_process_ended(box: Sandbox, installation: Installation) -> None:
    at_once = box.start_process("exit 7", process_id="twice")
    killed = box.start_process("sleep 60")
    late = box.start_process("sleep 60", timeout=0.2)
    at_once.wait_for_exit(10)
    box.start_process("exit 8", process_id="twice").wait_for_exit(10)
    killed.signal("SIGTERM")
    late.wait_for_exit(10)
    first, second, third, fourth = ends(installation, box, 4, "twice", killed.id, late.id)
    assert [one.get("exitCode") for one in (first, second)] == [7, 8]
    assert (third["signal"], third["timedOut"]) == ("SIGTERM", False)
    assert fourth["timedOut"] is True
    assert len(ends(installation, box, 4, "twice", killed.id, late.id)) == 4


def test_a_log_is_followed_to_the_end(box: Sandbox) -> None:
    process = box.start_process("for i in 1 2 3 4; do echo line $i; sleep 0.05; done")
    events = list(process.stream_logs())
    assert b"".join(e.data for e in events if e.type == "stdout") == b"line 1\nline 2\nline 3\nline 4\n"
    assert events[-1].process is not None
    assert events[-1].process.exit_code == 0
    assert b"".join(e.data for e in process.stream_logs(since=14)) == b"line 3\nline 4\n"


def test_following_goes_on_where_the_connection_broke(box: Sandbox) -> None:
    process = box.start_process("for i in $(seq 1 60); do echo $i; sleep 0.02; done")
    got = b""
    with process.stream_logs() as events:
        for at, event in enumerate(events):
            got += event.data
            if at in (2, 9, 10) and events._reply is not None:
                events._reply.hang_up()
    assert got.split() == [str(n).encode() for n in range(1, 61)]


def test_waits_run_out_without_ending_the_process(box: Sandbox) -> None:
    process = box.start_process("sleep 60")
    for wait, code in (
        (lambda: process.wait_for_exit(0.2), "PROCESS_WAIT_TIMEOUT"),
        (lambda: process.wait_for_log("never", 0.2), "PROCESS_WAIT_TIMEOUT"),
        (lambda: process.wait_for_port(4999, 0.2), "PROCESS_READY_TIMEOUT"),
    ):
        with pytest.raises(KennelError) as caught:
            wait()
        assert (caught.value.code, caught.value.status) == (code, 408)
    assert process.get_status().status == "running"
    process.kill(grace=0)


def test_a_server_is_waited_for_and_reached(box: Sandbox) -> None:
    server = box.start_process("sleep 0.3; exec python3 -m http.server 3000 --bind 127.0.0.1")
    assert server.wait_for_port(3000, 20).port == 3000
    assert server.wait_for_port(3000, 20, mode="http", path="/", status="200").status == 200
    assert box.wait_for_port(3000, 20).port == 3000
    assert "Directory listing" in box.fetch(3000, "/").text
    assert server.wait_for_log(re.compile(r'"GET / HTTP/1\.\d" 200'), 10).stream == "stderr"
    assert server.kill("SIGINT").status in ("running", "exited")
    assert server.wait_for_exit(10).status == "exited"
    with pytest.raises(KennelError) as caught:
        server.wait_for_port(3000, 10)
    assert caught.value.code == "PROCESS_EXITED_BEFORE_READY"


def test_input_from_outside(box: Sandbox) -> None:
    process = box.start_process("cat; echo end", stdin=True)
    assert process.write_stdin("héllo\n") == 7
    process.close_stdin()
    process.wait_for_exit(10)
    assert process.get_logs().stdout == "héllo\nend\n"


def test_it_outlives_a_death_of_control_and_of_node(own_installation: Installation) -> None:
    """Report 61b: a restart of the server ended what ran."""
    with own_installation.client() as itx:
        pet = itx.sandboxes.get("/sandboxes/enduring").create(sleep_after=3)
        process = pet.start_process("while :; do date +%s.%N; sleep 0.1; done", keep_awake=True)
        process.wait_for_log("1", 10)
        gone = pet.start_process("sleep 0.2; exit 9")
        own_installation.kill("control")
        own_installation.kill("node")
        deadline = time.monotonic() + 15
        while True:
            try:
                again = pet.get_process(process.id)
                break
            except KennelError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        assert again is not None
        assert (again.info.status, again.pid) == ("running", process.pid)
        before = again.get_logs().next
        assert [one.get("exitCode") for one in ends(own_installation, pet, 1, gone.id)] == [9]
        # Kept awake well past its idle time, by a process that was started through another control.
        time.sleep(5)
        assert pet.info().running
        assert again.get_logs(since=before).stdout
        again.kill(grace=0)
        deadline = time.monotonic() + 15
        while pet.info().running:
            assert time.monotonic() < deadline, "it did not fall asleep after its process"
            time.sleep(0.2)


def test_handles_are_stale_after_a_sleep_and_looking_wakes_nothing(itx: Kennel) -> None:
    """Report 35: a handle was silently attached to what had replaced its container."""
    pet = itx.sandboxes.get("/sandboxes/stale").create()
    process = pet.start_process("sleep 100", process_id="same")
    pet.sleep()
    assert pet.list_processes() == []
    assert pet.get_process("same") is None
    assert pet.kill_all_processes() == 0
    with pytest.raises(KennelError) as caught:
        process.get_status()
    assert caught.value.code == "STALE_PROCESS_HANDLE"
    assert not pet.info().running
    fresh = pet.start_process("sleep 100", process_id="same")
    for look in (process.get_status, process.kill, process.get_logs, lambda: process.wait_for_exit(1)):
        with pytest.raises(KennelError) as caught:
            look()
        assert (caught.value.code, caught.value.status) == ("STALE_PROCESS_HANDLE", 409)
    assert fresh.get_status().status == "running"
    assert pet.kill_all_processes(grace=0.1) == 1


def test_ps_lists_what_runs(box: Sandbox, installation: Installation) -> None:
    process = box.start_process("sleep 50; printf '\\033[31m'", process_id="listed")
    shown = installation.cli("ps", "processes").stdout.decode()
    assert re.search(r"listed +running +- +\d+ .*sleep 50", shown)
    assert "\x1b" not in shown
    process.kill(grace=0)
    assert b"listed" not in installation.cli("ps", "processes").stdout
    assert re.search(rb"listed +exited +137", installation.cli("ps", "processes", "--all").stdout)
