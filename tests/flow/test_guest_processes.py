"""Background processes through a real guest: life, logs, waits, input, trees, what is remembered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from guest_process import GuestProcess
from kennel.domain.command import Command
from kennel.relay.link import GuestLink
from kennel.wire.errors import KennelError
from patience import within

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
async def guest(process: GuestProcess) -> AsyncIterator[GuestLink]:
    link = await process.connect()
    yield link
    await link.processes.kill_all(0)
    await link.close()


def sh(text: str, **more: Any) -> Command:
    return Command(command=text, cwd="/", **more)


async def start(guest: GuestLink, text: str, *, stdin: bool = False, keep_awake: bool = False, **more: Any) -> Any:
    return await guest.processes.start(sh(text, **more), process_id=None, stdin=stdin, keep_awake=keep_awake)


async def log_of(guest: GuestLink, name: str, since: int = 0, *, follow: bool = False) -> tuple[bytes, bytes, int]:
    """stdout, stderr, bytes missed."""
    log = await guest.processes.log(name, since, follow=follow)
    found = {"stdout": b"", "stderr": b""}
    missed = 0
    async for piece in log:
        if piece.stream is None:
            missed += piece.missed
        else:
            found[piece.stream] += piece.data
    return found["stdout"], found["stderr"], missed


async def wait(guest: GuestLink, name: str, **words: Any) -> Any:
    return await asyncio.wait_for(guest.processes.wait(name, words), 20)


async def test_a_process_runs_ends_and_is_remembered(guest: GuestLink) -> None:
    facts = await start(guest, "echo out; echo err >&2; sleep 0.2; exit 7")
    assert (facts.state, facts.exit) == ("running", None)
    assert facts.pid > 0
    ended = await wait(guest, facts.id, **{"for": "exit"})
    assert (ended["status"], ended["exit"]) == ("exited", {"code": 7, "signal": None, "timedOut": False})
    assert await log_of(guest, facts.id) == (b"out\n", b"err\n", 0)
    assert facts.id in [one.id for one in await guest.processes.list()]


async def test_it_outlives_the_connection_that_started_it(process: GuestProcess, guest: GuestLink) -> None:
    other = await process.connect()
    facts = await other.processes.start(sh("sleep 0.3; echo alive"), process_id="kept", stdin=False, keep_awake=False)
    await other.close()
    assert (await guest.processes.get("kept")).state == "running"
    assert (await log_of(guest, facts.id, follow=True))[0] == b"alive\n"


async def test_a_hundred_very_short_commands_all_have_pid_log_and_exit(guest: GuestLink) -> None:
    """Reports 13: pid and logs were missing for very short commands."""
    for _ in range(100):
        facts = await start(guest, "echo x")
        assert facts.pid > 0
        assert (await wait(guest, facts.id, **{"for": "exit"}))["exit"]["code"] == 0
        assert (await log_of(guest, facts.id))[0] == b"x\n"
    assert len(await guest.processes.list()) == 64


async def test_a_start_that_fails_is_an_error_and_never_a_phantom(guest: GuestLink) -> None:
    """Reports 28 and 30: a failed start left a record that claimed to run."""
    with pytest.raises(KennelError) as caught:
        await guest.processes.start(
            Command(command="true", cwd="/nope"), process_id="phantom", stdin=False, keep_awake=False
        )
    assert caught.value.code == "INVALID_PROCESS_CWD"
    record = await guest.processes.get("phantom")
    assert record.state == "error"
    assert record.error is not None
    assert record.error[0] == "INVALID_PROCESS_CWD"


async def test_a_kill_asks_first_reaches_the_whole_tree_and_can_be_repeated(guest: GuestLink) -> None:
    """Report 36: kill of what had ended was refused."""
    facts = await start(guest, "setsid sleep 1000 & trap 'echo bye; exit 3' TERM; sleep 1001 & wait")
    await asyncio.sleep(0.2)
    ended = await guest.processes.kill(facts.id, 2000)
    assert ended.exit is not None
    assert (ended.state, ended.exit.code) == ("exited", 3)
    assert (await log_of(guest, facts.id))[0] == b"bye\n"
    assert await guest.processes.kill(facts.id, None) == ended
    left = await guest.exec(sh("ps -eo args | grep -c '[s]leep 100' || true"))
    assert left.stdout == b"0\n"


async def test_one_that_ignores_a_request_is_killed_after_its_grace(guest: GuestLink) -> None:
    facts = await start(guest, "trap '' TERM; sleep 1000")
    await asyncio.sleep(0.1)
    began = time.monotonic()
    ended = await guest.processes.kill(facts.id, 300)
    assert ended.exit is not None
    assert (ended.exit.code, ended.exit.signal) == (137, "SIGKILL")
    assert 0.25 < time.monotonic() - began < within(3)


async def test_signals_go_to_every_process_of_it_by_their_number(guest: GuestLink) -> None:
    """Report 36: the signal was ignored."""
    facts = await start(
        guest,
        "trap 'echo outer' USR1; (trap 'echo inner' USR1; while :; do sleep 0.05; done) & while :; do sleep 0.05; done",
    )
    await asyncio.sleep(0.3)
    await guest.processes.signal(facts.id, 10)
    await wait(guest, facts.id, **{"for": "log", "text": "outer"})
    await wait(guest, facts.id, **{"for": "log", "text": "inner"})
    assert (await guest.processes.get(facts.id)).state == "running"


async def test_it_runs_until_nothing_of_it_is_left(guest: GuestLink) -> None:
    facts = await start(guest, "(sleep 0.4; echo late) & exit 5")
    await asyncio.sleep(0.15)
    assert (await guest.processes.get(facts.id)).state == "running"
    assert (await wait(guest, facts.id, **{"for": "exit"}))["exit"]["code"] == 5
    assert (await log_of(guest, facts.id))[0] == b"late\n"


async def test_a_timeout_ends_it_and_says_so(guest: GuestLink) -> None:
    facts = await start(guest, "sleep 1000", timeout_ms=200)
    assert (await wait(guest, facts.id, **{"for": "exit"}))["exit"] == {"code": 124, "signal": None, "timedOut": True}


async def test_replay_then_live_gives_every_byte_once(guest: GuestLink) -> None:
    """Report 20: replay lost or doubled lines."""
    facts = await start(guest, "for i in $(seq 1 3000); do echo $i; done; echo e >&2")
    readers = []
    for at in range(12):
        readers.append(asyncio.ensure_future(log_of(guest, facts.id, follow=True)))
        await asyncio.sleep(0.002 * at)
    wanted = b"".join(b"%d\n" % i for i in range(1, 3001))
    for out, err, missed in await asyncio.gather(*readers):
        assert (out, err, missed) == (wanted, b"e\n", 0)


async def test_the_log_keeps_its_last_mebibyte_and_says_what_is_gone(guest: GuestLink) -> None:
    facts = await start(guest, "head -c 5000000 /dev/zero | tr '\\0' x; echo; echo end")
    await wait(guest, facts.id, **{"for": "exit"})
    out, _, missed = await log_of(guest, facts.id)
    assert missed + len(out) == 5_000_005
    assert 900_000 < len(out) <= 1024 * 1024
    assert out.endswith(b"x\nend\n")
    middle, _, gone = await log_of(guest, facts.id, since=5_000_001)
    assert (middle, gone) == (b"end\n", 0)


async def test_output_a_byte_at_a_time_on_alternating_streams_costs_no_more_memory(
    process: GuestProcess, guest: GuestLink
) -> None:
    before = process.memory()
    script = "import os\nfor i in range(120000): os.write(1 + i % 2, b'x')"
    facts = await guest.processes.start(
        Command(argv=("python3", "-c", script), cwd="/"), process_id=None, stdin=False, keep_awake=False
    )
    await wait(guest, facts.id, **{"for": "exit"})
    assert process.memory() - before < 8 * 1024 * 1024
    out, err, missed = await log_of(guest, facts.id)
    assert len(out) + len(err) + missed == 120_000


async def test_a_slow_reader_stops_no_process_and_learns_what_it_missed(guest: GuestLink) -> None:
    facts = await start(guest, "sleep 0.2; head -c 20000000 /dev/zero; echo")
    log = await guest.processes.log(facts.id, 0, follow=True)
    await wait(guest, facts.id, **{"for": "exit"})
    total = missed = 0
    async for piece in log:
        total += len(piece.data)
        missed += piece.missed
    assert total + missed == 20_000_001
    assert missed > 0


async def test_a_line_is_found_however_it_was_cut(guest: GuestLink) -> None:
    """Report 19: a pattern that was split over two chunks was not found."""
    facts = await start(guest, "printf 'Listening o'; sleep 0.1; printf 'n port 3000\\n'; sleep 5")
    text = await wait(guest, facts.id, **{"for": "log", "text": "Listening on port"})
    assert (text["line"], text["stream"]) == ("Listening on port 3000", "stdout")
    again = await wait(guest, facts.id, **{"for": "log", "pattern": r"port \d{4}$"})
    assert again["line"] == "Listening on port 3000"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(
            guest.processes.wait(facts.id, {"for": "log", "text": "x", "since": again["cursor"]}), 0.2
        )


async def test_each_line_is_found_once_from_the_cursor_on(guest: GuestLink) -> None:
    facts = await start(guest, "for i in 1 2 3 4 5; do echo tick $i; sleep 0.03; done; sleep 5")
    cursor, seen = 0, []
    for _ in range(5):
        found = await wait(guest, facts.id, **{"for": "log", "pattern": "tick [0-9]", "since": cursor})
        cursor = found["cursor"]
        seen.append(found["line"])
    assert seen == [f"tick {n}" for n in range(1, 6)]


async def test_waits_fail_at_once_when_it_ends_first(guest: GuestLink) -> None:
    """Report 33: a wait for something that had ended ran into its time limit."""
    for words in ({"for": "log", "text": "never"}, {"for": "port", "port": 9}):
        facts = await start(guest, "sleep 0.1; echo trouble >&2; exit 9")
        began = time.monotonic()
        with pytest.raises(KennelError) as caught:
            await wait(guest, facts.id, **words)
        assert caught.value.code == "PROCESS_EXITED_BEFORE_READY"
        assert caught.value.details["exitCode"] == 9
        assert time.monotonic() - began < within(3)
        with pytest.raises(KennelError):
            await wait(guest, facts.id, **words)


SERVER = """
import http.server, time, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if time.time() > %f else 503); self.end_headers(); self.wfile.write(b'hi')
    def log_message(self, *a): print('hit', flush=True)
time.sleep(0.3)
http.server.HTTPServer(('127.0.0.1', 8123), H).serve_forever()
"""


async def test_a_port_is_ready_when_it_accepts_or_answers(guest: GuestLink) -> None:
    script = SERVER % (time.time() + 0.9)
    facts = await guest.processes.start(
        Command(argv=("python3", "-c", script), cwd="/"), process_id=None, stdin=False, keep_awake=False
    )
    assert await wait(guest, facts.id, **{"for": "port", "port": 8123}) == {"port": 8123, "status": None}
    ready = await wait(guest, facts.id, **{"for": "port", "port": 8123, "mode": "http", "path": "/"})
    assert ready == {"port": 8123, "status": 200}
    wire = await guest.connect(8123)
    await wire.write(b"GET / HTTP/1.0\r\n\r\n")
    got = b""
    while piece := await wire.read():
        got += piece
    assert got.endswith(b"hi")
    await wire.close()


async def test_nothing_listening_is_said(guest: GuestLink) -> None:
    with pytest.raises(KennelError) as caught:
        await guest.connect(9)
    assert (caught.value.code, caught.value.admitted) == ("SERVICE_NOT_RESPONDING", "no")


async def test_input_goes_in_as_it_is_read_and_ends_when_told(guest: GuestLink) -> None:
    facts = await start(guest, "while read -r line; do echo got $line; done; echo end", stdin=True)
    assert await guest.processes.feed(facts.id, b"one\ntwo\n", eof=False) == 8
    await wait(guest, facts.id, **{"for": "log", "text": "got two"})
    await guest.processes.feed(facts.id, b"three\n", eof=True)
    assert (await log_of(guest, facts.id, follow=True))[0] == b"got one\ngot two\ngot three\nend\n"
    with pytest.raises(KennelError) as caught:
        await guest.processes.feed(facts.id, b"x", eof=False)
    assert caught.value.code == "PROCESS_EXITED"


async def test_input_that_nobody_reads_is_bounded(process: GuestProcess, guest: GuestLink) -> None:
    facts = await start(guest, "sleep 1000", stdin=True)
    before = process.memory()
    for _ in range(6):
        with pytest.raises((TimeoutError, KennelError)):
            await asyncio.wait_for(guest.processes.feed(facts.id, bytes(3_000_000), eof=False), 0.2)
    assert process.memory() - before < 6 * 1024 * 1024


async def test_a_process_without_input_reads_the_end(guest: GuestLink) -> None:
    """Report 10: commands that read their input hung."""
    facts = await start(guest, "cat; echo done")
    assert (await log_of(guest, facts.id, follow=True))[0] == b"done\n"


async def test_handles_of_an_earlier_run_are_stale(guest: GuestLink) -> None:
    """Report 35: a handle was attached to whatever had the id now."""
    facts = await start(guest, "sleep 5")
    assert facts.runtime == guest.runtime
    with pytest.raises(KennelError) as caught:
        await guest.processes.get(facts.id, runtime="0123456789abcdef")
    assert caught.value.code == "STALE_PROCESS_HANDLE"
    assert (await guest.processes.get(facts.id, runtime=facts.runtime)).id == facts.id


async def test_an_id_is_taken_while_its_process_runs(guest: GuestLink) -> None:
    for _ in range(2):
        await guest.processes.start(sh("sleep 9"), process_id="mine", stdin=False, keep_awake=False)
        with pytest.raises(KennelError) as caught:
            await guest.processes.start(sh("true"), process_id="mine", stdin=False, keep_awake=False)
        assert caught.value.code == "PROCESS_ALREADY_EXISTS"
        await guest.processes.kill("mine", 0)


async def test_awake_lasts_as_long_as_a_process_that_asked_for_it(guest: GuestLink) -> None:
    await asyncio.wait_for(guest.processes.awake(), 1)
    facts = await start(guest, "sleep 1000", keep_awake=True)
    vigil = asyncio.ensure_future(guest.processes.awake())
    await asyncio.sleep(0.1)
    assert not vigil.done()
    await guest.processes.kill(facts.id, 0)
    await asyncio.wait_for(vigil, 1)


async def test_patterns_that_could_take_for_ever_take_no_longer(guest: GuestLink) -> None:
    facts = await start(guest, "head -c 60000 /dev/zero | tr '\\0' a; echo '!'; echo marker; sleep 5")
    began = time.monotonic()
    found = await wait(guest, facts.id, **{"for": "log", "pattern": "^(a+)+$|^mark(er)$"})
    assert found["line"] == "marker"
    assert time.monotonic() - began < within(5)
    with pytest.raises(KennelError) as caught:
        await wait(guest, facts.id, **{"for": "log", "pattern": r"(a)\1"})
    assert caught.value.code == "VALIDATION_FAILED"


async def test_a_thousand_starts_leave_nothing_open(process: GuestProcess, guest: GuestLink) -> None:
    await start(guest, "true")
    await asyncio.sleep(0.2)
    before = process.descriptors()
    for _ in range(200):
        facts = await start(guest, "true", stdin=True)
        await wait(guest, facts.id, **{"for": "exit"})
    await asyncio.sleep(0.2)
    assert process.descriptors() <= before + 2
