"""What a request to run something means: a table of words in, jobs or refusals out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kennel.guest import launch
from kennel.guest.accounts import Account, Accounts
from kennel.guest.refusal import Refusal


@pytest.fixture
def accounts(tmp_path: Path) -> Accounts:
    uid, gid = os.getuid(), os.getgid()
    (tmp_path / "passwd").write_text(f"me:x:{uid}:{gid}::/me:/bin/sh\nana:x:5000:5001::/ana:/bin/sh\n")
    (tmp_path / "group").write_text("both:x:5002:ana\n")
    return Accounts(str(tmp_path / "passwd"), str(tmp_path / "group"))


def no_spill(script: bytes, account: Account) -> str:
    raise AssertionError("nothing here is that long")


def job(accounts: Accounts, **args: Any) -> launch.Job:
    return launch.job_for(args, accounts, no_spill)


def test_a_command_is_the_shells(accounts: Accounts) -> None:
    files, words, env, cwd, identity = job(accounts, command="echo é", cwd="/x", env={"A": "ü", "HOME": "/h"})
    shell = (launch.bash() or launch.SH).encode()
    assert (files, words) == ((shell,), (os.path.basename(shell), b"-c", "echo é".encode()))
    assert env == {
        b"PATH": launch.PATH.encode(),
        b"HOME": b"/h",
        b"USER": b"me",
        b"LANG": b"C.UTF-8",
        b"A": "ü".encode(),
    }
    assert (cwd, identity) == (b"/x", None)


def test_without_bash_it_is_sh(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "BASHES", ("/none/bash",))
    files, words, *_ = job(accounts, command="x", cwd="/")
    assert (files, words) == ((b"/bin/sh",), (b"sh", b"-c", b"x"))


@pytest.mark.parametrize(
    ("program", "path", "files"),
    [
        ("ls", None, [f"{folder}/ls".encode() for folder in launch.PATH.split(":")]),
        ("ls", "/a:/b", [b"/a/ls", b"/b/ls"]),
        ("ls", ":/b", [b"./ls", b"/b/ls"]),
        ("/x/ls", "/a", [b"/x/ls"]),
        ("./ls", "/a", [b"./ls"]),
    ],
)
def test_a_program_is_looked_for_in_the_path_it_gets(
    accounts: Accounts, program: str, path: str | None, files: list[bytes]
) -> None:
    made = job(accounts, argv=[program, "", "-l"], cwd="/", env={} if path is None else {"PATH": path})
    assert (list(made[0]), made[1]) == (files, (program.encode(), b"", b"-l"))


def test_another_user_is_an_identity(accounts: Accounts) -> None:
    made = job(accounts, command="x", cwd="/", user="ana")
    assert made[4] == (5000, 5001, (5001, 5002))
    assert (made[2][b"HOME"], made[2][b"USER"]) == (b"/ana", b"ana")


def test_a_long_command_is_spilled_to_the_account_that_reads_it(accounts: Accounts) -> None:
    seen: list[tuple[int, int]] = []

    def spill(script: bytes, account: Account) -> str:
        seen.append((len(script), account.uid))
        return "/spilled"

    made = launch.job_for({"command": "é" * 70_000, "cwd": "/", "user": "ana"}, accounts, spill)
    assert (seen, made[1][2]) == ([(140_000, 5000)], b". /spilled")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"cwd": "/"}, "INVALID_COMMAND"),
    ({"command": "x", "argv": ["x"]}, "INVALID_COMMAND"),
    ({"command": 1}, "INVALID_COMMAND"),
    ({"command": "a\0"}, "INVALID_COMMAND"),
    ({"command": "\ud800"}, "INVALID_COMMAND"),
    ({"argv": []}, "INVALID_COMMAND"),
    ({"argv": [""]}, "INVALID_COMMAND"),
    ({"argv": ["x", None]}, "INVALID_COMMAND"),
    ({"argv": ["x", "a\0"]}, "INVALID_COMMAND"),
    ({"argv": "x"}, "INVALID_COMMAND"),
    ({"command": "x", "cwd": "x"}, "INVALID_PROCESS_CWD"),
    ({"command": "x", "cwd": "a\0"}, "INVALID_COMMAND"),
    ({"command": "x", "env": []}, "INVALID_PROCESS_ENVIRONMENT"),
    ({"command": "x", "env": {"": "x"}}, "INVALID_PROCESS_ENVIRONMENT"),
    ({"command": "x", "env": {"A=": "x"}}, "INVALID_PROCESS_ENVIRONMENT"),
    ({"command": "x", "env": {"A": None}}, "INVALID_PROCESS_ENVIRONMENT"),
    ({"command": "x", "env": {"A": "\0"}}, "INVALID_PROCESS_ENVIRONMENT"),
    ({"command": "x", "env": {f"A{n}": "" for n in range(10_001)}}, "INVALID_PROCESS_ENVIRONMENT"),
    ({"command": "x", "user": "none"}, "INVALID_USER"),
    ({"command": "x", "user": 5}, "INVALID_COMMAND"),
]


@pytest.mark.parametrize(("args", "code"), BAD, ids=range(len(BAD)))
def test_what_means_nothing_is_refused(accounts: Accounts, args: dict[str, Any], code: str) -> None:
    with pytest.raises(Refusal) as caught:
        job(accounts, **args)
    assert caught.value.code == code


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.fixed_dictionaries({}, optional={name: ANY for name in ("command", "argv", "cwd", "env", "user")}))
@settings(max_examples=150, deadline=None)
def test_arguments_of_any_shape_are_a_job_or_a_refusal(args: dict[str, Any]) -> None:
    try:
        made = launch.job_for(args, Accounts(), no_spill)
    except Refusal:
        return
    assert all(type(word) is bytes and b"\0" not in word for word in made[1])
