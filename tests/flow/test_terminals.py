"""Terminals through the whole installation: replay, return, who drives, and `kennel shell` in a real one."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from installation import Installation
from kennel import Kennel, KennelError, Sandbox, Terminal


@pytest.fixture(scope="module")
def box(installation: Installation) -> Iterator[Sandbox]:
    with installation.client() as itx:
        yield itx.sandboxes.get("/sandboxes/terminals").create()


def until(terminal: Terminal, text: bytes) -> bytes:
    """Reads on until the text is there."""
    got = b""
    for data in terminal:
        got += data
        if text in got:
            return got
    raise AssertionError(got)


def test_a_shell_on_a_terminal_of_its_own_size(box: Sandbox) -> None:
    with box.terminal("sized", cols=101, rows=31) as terminal:
        terminal.write(b"stty size; tty; echo $TERM; echo MARK$((1+1))\r")
        got = until(terminal, b"MARK2")
        assert b"31 101" in got
        assert b"/dev/pts/" in got
        assert b"xterm-256color" in got
        terminal.resize(90, 20)
        terminal.write(b"stty size; echo MARK$((2+2))\r")
        assert b"20 90" in until(terminal, b"MARK4")
        terminal.write(b"sleep 100\r")
        time.sleep(0.3)
        terminal.write(b"\x03")
        terminal.write(b"exit 7\r")
        for _ in terminal:
            continue
    assert terminal.exit is not None
    assert terminal.exit.code == 7


def test_return_by_position_loses_and_doubles_nothing(box: Sandbox) -> None:
    with box.terminal("back", argv=["sh"]) as terminal:
        terminal.write(b"echo FIRST$((1+0))\r")
        until(terminal, b"FIRST1")
        cursor = terminal.cursor
    with box.terminal("back", since=0) as whole:
        assert b"FIRST1" in until(whole, b"FIRST1")
    with box.terminal("back", since=cursor) as rest:
        rest.write(b"echo SECOND$((1+1))\r")
        assert b"FIRST1" not in until(rest, b"SECOND2")
    box.close_terminal("back")


def test_the_ring_keeps_the_last_256_kib_and_says_what_is_gone(box: Sandbox) -> None:
    with box.terminal("ring", argv=["sh", "-c", "seq 1 100000; echo LAST; sleep 30"]) as terminal:
        until(terminal, b"LAST")
    with box.terminal("ring", since=0, mode="watch") as late:
        got = until(late, b"LAST")
    assert late.missed > 0
    assert 200 * 1024 < len(got) <= 256 * 1024
    box.close_terminal("ring")


def test_one_drives_and_the_others_look_on(box: Sandbox) -> None:
    with (
        box.terminal("shared", argv=["sh"]) as first,
        box.terminal("shared", mode="watch") as watcher,
        box.terminal("shared") as second,
    ):
        until(second, b"# ")
        watcher.write(b"echo WATCHER$((1+1))\r")
        first.write(b"echo FIRST$((1+1))\r")
        second.write(b"echo SECOND$((1+1))\r")
        seen = until(second, b"SECOND2")
        assert b"FIRST2" not in seen
        assert b"WATCHER2" not in seen
        assert b"SECOND2" in until(first, b"SECOND2")
        assert b"SECOND2" in until(watcher, b"SECOND2")
        assert (first.role, watcher.role, second.role) == ("watch", "watch", "drive")
    box.close_terminal("shared")


def test_watching_opens_nothing(itx: Kennel, box: Sandbox) -> None:
    with pytest.raises(KennelError) as caught:
        next(box.terminal("none", mode="watch"))
    assert caught.value.code == "TERMINAL_NOT_FOUND"
    asleep = itx.sandboxes.get("/sandboxes/terminals-asleep").create()
    assert asleep.list_terminals() == []
    with pytest.raises(KennelError):
        next(asleep.terminal("main", mode="watch"))
    assert not asleep.info().running


def test_as_another_user_and_with_the_sandboxs_variables(box: Sandbox) -> None:
    box.set_env_vars({"SEEN": "inside"})
    with box.terminal(
        "user", argv=["sh", "-c", "id -un; echo $SEEN; echo x > /dev/tty; echo END"], user="nobody"
    ) as one:
        got = until(one, b"END")
    assert b"nobody" in got
    assert b"inside" in got
    assert b"x\r\n" in got


class Person:
    """`kennel shell` on a pseudo-terminal."""

    def __init__(self, installation: Installation, *words: str) -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        command = [sys.executable, "-m", "kennel.cli", "shell", *words]
        environment = {**os.environ, "KENNEL_DATA": str(installation.data)}
        self.process = subprocess.Popen(
            command, stdin=self.slave, stdout=self.slave, stderr=self.slave, env=environment, start_new_session=True
        )
        self.got = b""

    def until(self, text: bytes, seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while text not in self.got:
            assert time.monotonic() < end, self.got
            if select.select([self.master], [], [], 0.1)[0]:
                self.got += os.read(self.master, 65536)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def ended(self) -> int:
        while self.process.poll() is None:
            if select.select([self.master], [], [], 0.05)[0]:
                self.got += os.read(self.master, 65536)
        while select.select([self.master], [], [], 0)[0]:  # its last words, said between the two looks
            self.got += os.read(self.master, 65536)
        assert termios.tcgetattr(self.slave) == self.before
        os.close(self.master)
        os.close(self.slave)
        return self.process.returncode


def test_a_person_in_a_shell(installation: Installation, box: Sandbox) -> None:
    person = Person(installation, "terminals", "--id", "person")
    person.until(b"# ")
    person.type(b"stty size; echo MARK$((1+1))\r")
    person.until(b"MARK2")
    assert b"33 111" in person.got
    fcntl.ioctl(person.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    person.process.send_signal(signal.SIGWINCH)
    time.sleep(0.3)
    person.type(b"stty size; echo MARK$((2+1))\r")
    person.until(b"MARK3")
    assert b"40 120" in person.got
    person.type(b"\x1d")
    assert person.ended() == 0
    assert b"detached" in person.got
    back = Person(installation, "terminals", "--id", "person")
    back.until(b"MARK3")
    back.type(b"exit 4\r")
    assert back.ended() == 4


def test_a_terminal_is_restored_when_the_command_is_killed_or_refused(installation: Installation, box: Sandbox) -> None:
    person = Person(installation, "terminals", "--id", "killed")
    person.until(b"# ")
    person.process.send_signal(signal.SIGTERM)
    assert person.ended() == 128 + signal.SIGTERM
    refused = Person(installation, "never-created")
    assert refused.ended() == 1
    assert b"SANDBOX_NOT_FOUND" in refused.got


def test_without_a_terminal_there_is_no_shell(installation: Installation) -> None:
    done = installation.cli("shell", "terminals")
    assert done.returncode == 2
    assert b"no terminal" in done.stderr
