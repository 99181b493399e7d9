"""Persistent shells in a real guest: what lasts, what does not, how they end and are replaced."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator

import pytest

from guest_process import GuestProcess
from kennel.domain.command import Command, Outcome
from kennel.relay.link import GuestLink
from kennel.wire.errors import KennelError
from patience import within


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


class Talk:
    """One session of one link."""

    def __init__(self, link: GuestLink, name: str) -> None:
        self.link = link
        self.name = name

    async def say(self, text: str, **more: object) -> Outcome:
        command = Command(command=text, session_id=self.name, **more)  # type: ignore[arg-type]
        return await asyncio.wait_for(self.link.exec(command), 10)

    async def out(self, text: str, **more: object) -> str:
        outcome = await self.say(text, **more)
        assert outcome.stderr == b"", outcome
        return outcome.stdout.decode()


@pytest.fixture
async def talk(process: GuestProcess) -> AsyncIterator[Talk]:
    link = await process.connect()
    await link.open_session("s", cwd="/tmp", env={"GIVEN": "yes"}, user=None)
    yield Talk(link, "s")
    for name in await link.list_sessions():
        await link.close_session(name)
    assert process.commands() == []
    await link.close()


@pytest.fixture
async def room(process: GuestProcess) -> AsyncIterator[Talk]:
    link = await process.connect()
    await link.open_session("r", cwd="/tmp", env={}, user=None, replace=True)
    yield Talk(link, "r")
    await link.close_session("r")
    assert process.commands() == []
    await link.close()


@pytest.mark.anyio
async def test_directory_variables_functions_aliases_and_codes_last(talk: Talk) -> None:
    outcome = await talk.say(
        "cd /usr; X=5; export Y='a\nb'; declare -A M=([k]=v); f() { echo f $X \"$1\"; }; alias hi='echo hello'"
    )
    assert (outcome.exit_code, outcome.cwd) == (0, "/usr")
    assert await talk.out('f "a b"; hi; echo "$Y" ${M[k]} $GIVEN; pwd') == "f 5 a b\nhello\na\nb v yes\n/usr\n"
    assert (await talk.say("(exit 9)")).exit_code == 9
    assert await talk.out("echo $?") == "9\n"
    assert (await talk.say("return 5")).exit_code == 5
    assert (await talk.say("no-such-program")).exit_code == 127


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "stdout", "code"),
    [
        ("printf 'no newline'", b"no newline", 0),
        ("printf '\\n\\n'", b"\n\n", 0),
        ("printf '\\0\\377\\1'", b"\0\xff\1", 0),
        ("cat <<E\nhere $((1+1))\nE", b"here 2\n", 0),
        ("cat <<'E'\nhere $x\nE\necho after", b"here $x\nafter\n", 0),
        ("echo 'open", b"", 2),
        ("if true", b"", 2),
        ("echo $((1/0)); echo no", b"", 1),
        ("echo ${NONE:?no}; echo no", b"", 1),
        ("cat", b"", 0),
        ('read x; echo "[$x]"', b"[]\n", 0),
        ("exec >/dev/null; echo gone", b"", 0),
        ("exec 2>&1; echo here >&2", b"here\n", 0),
        ("exec </etc/hostname; wc -l", b"1\n", 0),
        ('echo "\'\\"\\$(x)"', b"'\"$(x)\n", 0),
        ("# only a comment", b"", 0),
        ("", b"", 0),
        ("break; continue; echo on", b"on\n", 0),
        ("echo a; echo b & wait; echo c", b"a\nb\nc\n", 0),
        ("false | true", b"", 0),
        ("sh -c 'kill -9 $$'", b"", 137),
        ("echo one\r\necho two", b"one\r\ntwo\n", 0),
        ("echo !!; echo a!b", b"!!\na!b\n", 0),
        ("cd /nowhere", b"", 1),
        ("shopt -q expand_aliases; echo $?", b"0\n", 0),
    ],
)
async def test_one_command_ends_exactly_and_leaves_the_shell_well(
    talk: Talk, text: str, stdout: bytes, code: int
) -> None:
    outcome = await talk.say(text)
    assert (outcome.stdout, outcome.exit_code, outcome.timed_out) == (stdout, code, False)
    assert await talk.out("echo well") == "well\n"


@pytest.mark.anyio
async def test_input_is_exact_and_ends(talk: Talk) -> None:
    data = bytes(range(256)) * 2000
    assert (await talk.say("cat", stdin=data)).stdout == data
    assert await talk.out('read a; read b; echo "$b-$a"', stdin=b"1\n2\n3") == "2-1\n"
    assert await talk.out("echo unread", stdin=bytes(3_000_000)) == "unread\n"
    assert await talk.out("cat") == ""


@pytest.mark.anyio
async def test_variables_and_directory_of_one_call_do_not_last(talk: Talk) -> None:
    assert await talk.out("echo $ONCE; pwd", env={"ONCE": "it's"}, cwd="/etc") == "it's\n/etc\n"
    outcome = await talk.say('echo "[$ONCE]"; pwd')
    assert (outcome.stdout, outcome.cwd) == (b"[]\n/tmp\n", "/tmp")
    for wrong in ({"env": {"a-b": "1"}}, {"cwd": "/none"}):
        with pytest.raises(KennelError) as caught:
            await talk.say("true", **wrong)
        assert caught.value.admitted == "no"


@pytest.mark.anyio
async def test_words_are_run_in_a_session_as_they_are(talk: Talk) -> None:
    command = Command(argv=("printf", "%s|", "a b", "$X", "'", "*"), session_id="s")
    assert (await talk.link.exec(command)).stdout == b"a b|$X|'|*|"


@pytest.mark.anyio
async def test_options_and_traps_of_a_shell_do_not_disturb_the_calls(talk: Talk) -> None:
    assert (await talk.say("set -x; echo a")).stdout == b"a\n"
    traced = await talk.say("echo b")
    assert (traced.stdout, traced.stderr) == (b"b\n", b"++ echo b\n")
    await talk.say("set +x; set -u; trap 'echo trapped >&2' ERR; trap 'echo debug >/dev/null' DEBUG")
    assert (await talk.say("false")).stderr == b"trapped\n" * (await talk.say("false")).stderr.count(b"\n")
    assert await talk.out("trap - ERR DEBUG; set +u; IFS=:; echo ok") == "ok\n"
    assert await talk.out("export PS1=x PROMPT_COMMAND='echo no'; echo ok") == "ok\n"
    assert await talk.out("echo ok") == "ok\n"


@pytest.mark.anyio
async def test_calls_of_one_session_run_in_order_and_sessions_in_parallel(talk: Talk) -> None:
    await talk.link.open_session("other", cwd="/", env={}, user=None)
    await talk.say("n=0")
    slow = asyncio.create_task(talk.say("sleep 0.4; echo $((++n))"))
    await asyncio.sleep(0)
    calls = [asyncio.create_task(talk.say("echo $((++n))")) for _ in range(20)]
    began = time.monotonic()
    assert await Talk(talk.link, "other").out("echo free") == "free\n"
    assert time.monotonic() - began < within(0.3)
    assert [(await call).stdout for call in (slow, *calls)] == [b"%d\n" % number for number in range(1, 22)]


@pytest.mark.anyio
async def test_a_background_job_holds_no_call_and_can_be_waited_for(talk: Talk) -> None:
    began = time.monotonic()
    assert await talk.out("(sleep 0.4; echo lost; exit 3) & echo started") == "started\n"
    assert time.monotonic() - began < within(0.3)
    assert (await talk.say("wait $!")).exit_code == 3
    assert "sleep 301" not in await talk.out("jobs")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "text",
    [
        "sleep 302; touch {mark}",
        "for i in 1 2 3 4; do sleep 303; touch {mark}; done; touch {mark}",
        "while :; do :; done; touch {mark}",
        "echo $(sleep 304); touch {mark}",
        "sleep 305 | cat; touch {mark}",
        "g() {{ sleep 306; touch {mark}; }}; g; touch {mark}",
        "(trap '' TERM INT; sleep 307; sleep 307; touch {mark}); touch {mark}",
        "sleep 308 &\nwait; touch {mark}",
        "(setsid sh -c \"trap '' TERM; sleep 309; touch {mark}\" &); sleep 310\ntouch {mark}",
    ],
)
async def test_a_timeout_ends_the_command_and_not_the_shell(talk: Talk, process: GuestProcess, text: str) -> None:
    await talk.say("cd /usr; X=kept; h() { echo h; }; sleep 399 &")
    mark = f"{process.folder}/mark"
    began = time.monotonic()
    outcome = await talk.say("echo out; " + text.format(mark=mark), timeout_ms=200)
    assert time.monotonic() - began < within(1.2)
    assert (outcome.exit_code, outcome.timed_out, outcome.stdout[:4]) == (124, True, b"out\n")
    left = [line for line in process.commands() if not line.startswith("bash --norc")]
    assert left == ["sleep 399"]  # an earlier command's job is not this one's
    assert await talk.out("h; echo $X; pwd; kill %1") == "h\nkept\n/usr\n"
    assert not os.path.exists(mark)


@pytest.mark.anyio
@pytest.mark.parametrize("stuck", ["read x </dev/zero", "trap '' 47; while :; do :; done"])
async def test_a_stuck_shell_is_replaced_with_what_it_had_exported(talk: Talk, stuck: str) -> None:
    await talk.say("cd /usr; export KEPT='a\n\"b\\'; LOST=1")
    outcome = await talk.say(stuck, timeout_ms=200)
    assert (outcome.exit_code, outcome.duration_ms < 1200) == (124, True)
    assert await talk.out('echo "$KEPT$LOST$GIVEN"; pwd') == 'a\n"b\\yes\n/usr\n'


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("exit 7", 7),
        ("exec false", 1),
        ("kill -9 $$", 137),
        ("set -e; false; echo no", 1),
        ("trap 'echo bye' EXIT; exit 3", 3),
    ],
)
async def test_a_shell_that_ends_says_so_once_and_starts_afresh(talk: Talk, text: str, code: int) -> None:
    await talk.say("cd /usr; export GONE=1")
    outcome = await talk.say(text)
    assert (outcome.exit_code, outcome.stdout) == (code, b"bye\n" if "bye" in text else b"")
    with pytest.raises(KennelError) as caught:
        await talk.say("echo x")
    assert (caught.value.code, caught.value.status, caught.value.admitted) == ("SESSION_TERMINATED", 410, "no")
    assert caught.value.details == {"exitCode": code}
    assert await talk.out('echo "[$GONE]" $GIVEN; pwd') == "[] yes\n/tmp\n"


@pytest.mark.anyio
async def test_a_rooms_shell_is_replaced_at_once_where_it_was(room: Talk) -> None:
    await room.say(
        "mkdir -p /tmp/kennel-gone; cd /tmp/kennel-gone; export V=$'x\\ty \\303\\251 \\377'; f() { :; }; sleep 311 &"
    )
    outcome = await room.say("exit 7")
    assert (outcome.exit_code, outcome.cwd) == (7, "/tmp/kennel-gone")
    assert (await room.say('printf %s "$V"; pwd')).stdout == b"x\ty \xc3\xa9 \xff/tmp/kennel-gone\n"
    assert (await room.say("f")).exit_code == 127
    await room.say("rmdir /tmp/kennel-gone; exit 0")
    assert await room.out("pwd") == "/tmp\n"


@pytest.mark.anyio
async def test_the_state_of_a_session_can_be_taken_elsewhere(talk: Talk) -> None:
    assert await talk.link.session_state("s") == {"cwd": "/tmp", "env": {"GIVEN": "yes"}}
    await talk.say("cd /usr; export A='1\n2' B=\"q'\\\"\\`\\$\\\\\"; unset GIVEN; export -n NOT=1")
    state = await talk.link.session_state("s")
    assert state["cwd"] == "/usr"
    assert {name: state["env"].get(name) for name in ("A", "B", "GIVEN", "NOT", "SHLVL")} == {
        "A": "1\n2", "B": "q'\"`$\\", "GIVEN": None, "NOT": None, "SHLVL": None,
    }  # fmt: skip
    await talk.link.open_session("twin", cwd=state["cwd"], env=state["env"], user=None)
    assert await Talk(talk.link, "twin").out('printf "%s" "$A$B"; pwd') == "1\n2q'\"`$\\/usr\n"


@pytest.mark.anyio
async def test_a_session_outlives_its_connection_and_a_lost_one_kills_its_command(
    talk: Talk, process: GuestProcess
) -> None:
    await talk.say("X=1; sleep 312 &")
    other = await process.connect()
    doomed = asyncio.create_task(other.exec(Command(command="sleep 313; sleep 314", session_id="s")))
    await asyncio.sleep(0.2)
    await other.close()
    with pytest.raises(KennelError):
        await doomed
    assert await talk.out("echo $X; jobs | wc -l; kill %1") == "1\n1\n"
    assert not [line for line in process.commands() if line in ("sleep 313", "sleep 314")]


@pytest.mark.anyio
async def test_a_cancelled_call_leaves_the_shell_to_the_next(talk: Talk) -> None:
    await talk.say("X=1")
    first = asyncio.create_task(talk.say("sleep 315"))
    second = asyncio.create_task(talk.say("echo never"))
    third = asyncio.create_task(talk.say("echo $X"))
    await asyncio.sleep(0.1)
    second.cancel()
    await asyncio.sleep(0)
    first.cancel()
    assert (await third).stdout == b"1\n"


@pytest.mark.anyio
async def test_another_users_session(process: GuestProcess) -> None:
    link = await process.connect()
    await link.open_session("u", cwd="/", env={}, user="nobody")
    mine = Talk(link, "u")
    assert await mine.out("id -u; echo $HOME; cd /tmp") == "65534\n/nonexistent\n"
    assert await mine.out("cat; pwd", stdin=b"in\n") == "in\n/tmp\n"
    outcome = await mine.say("sleep 316; echo no", timeout_ms=100)
    assert outcome.exit_code == 124
    home = await mine.out("echo $BASH_SOURCE")
    assert await mine.out(f"stat -c %a:%u {os.path.dirname(home)}") == "711:0\n"
    await link.close_session("u")
    await link.close()


@pytest.mark.anyio
async def test_closing_kills_all_it_ran_and_what_waits(talk: Talk, process: GuestProcess) -> None:
    await talk.say("(setsid sh -c \"trap '' TERM; sleep 317\" &); sleep 318 &")
    running, waiting = (asyncio.create_task(talk.say(text)) for text in ("sleep 319", "echo x"))
    await asyncio.sleep(0.1)
    await talk.link.close_session("s")
    for call in (running, waiting):
        with pytest.raises(KennelError) as caught:
            await call
        assert caught.value.code == "SESSION_DESTROYED"
    assert process.commands() == []
    with pytest.raises(KennelError) as caught:
        await talk.say("true")
    assert caught.value.code == "SESSION_NOT_FOUND"


@pytest.mark.anyio
async def test_opening_what_cannot_be_opened(talk: Talk) -> None:
    for words, code in (
        ({"session_id": "s", "cwd": "/", "user": None}, "SESSION_ALREADY_EXISTS"),
        ({"session_id": "t", "cwd": "/none", "user": None}, "INVALID_PROCESS_CWD"),
        ({"session_id": "t", "cwd": "/", "user": "none"}, "INVALID_USER"),
    ):
        with pytest.raises(KennelError) as caught:
            await talk.link.open_session(env={}, **words)  # type: ignore[arg-type]
        assert caught.value.code == code
    assert await talk.link.list_sessions() == ["s"]


@pytest.mark.anyio
async def test_a_shell_that_kills_its_subreaper_is_gone_with_all(room: Talk, process: GuestProcess) -> None:
    outcome = await room.say("export A=1; sleep 320 & kill -9 $PPID; sleep 321")
    assert outcome.exit_code == 137
    assert await room.out("echo on") == "on\n"
    assert not [line for line in process.commands() if line.startswith("sleep")]


@pytest.mark.anyio
@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.full)])
async def test_sessions_come_and_go_without_a_leak(talk: Talk, process: GuestProcess, count: int) -> None:
    async def life(name: str) -> None:
        await talk.link.open_session(name, cwd="/", env={}, user=None)
        assert await Talk(talk.link, name).out("echo hi") == "hi\n"
        await talk.link.close_session(name)

    await asyncio.gather(*(life(f"warm{number}") for number in range(10)))
    before = process.descriptors()
    for at in range(0, count, 20):
        await asyncio.gather(*(life(f"n{at + number}") for number in range(20)))
    await asyncio.sleep(0.1)
    assert process.descriptors() <= before
    assert len((await talk.out("ls /dev/shm/.kennel-*")).split()) == 1
