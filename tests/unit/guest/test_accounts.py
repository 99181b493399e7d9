"""Account files of any content: who is found, who is not, and that nothing else happens."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kennel.guest.accounts import Accounts
from kennel.guest.refusal import Refusal

PASSWD = """root:x:0:0:root:/root:/bin/bash
broken line
ana:x:1000:1001:Ana:/home/ana:/bin/sh
1234:x:7:7::/odd:/bin/sh
bad:x:notanumber:1::/:/bin/sh
huge:x:99999999999:1::/:/bin/sh
nogid:x:5:x::/:/bin/sh
homeless:x:1002:1002::
"""
GROUP = "root:x:0:\nana:x:1001:\nwheel:x:10:root,ana\nbig:x:x:ana\nvideo:x:44:ana\n"


@pytest.fixture
def accounts(tmp_path: Path) -> Accounts:
    (tmp_path / "passwd").write_text(PASSWD)
    (tmp_path / "group").write_text(GROUP)
    return Accounts(str(tmp_path / "passwd"), str(tmp_path / "group"))


@pytest.mark.parametrize(
    ("user", "found"),
    [
        ("root", ("root", 0, 0, "/root", [0, 10])),
        ("0", ("root", 0, 0, "/root", [0, 10])),
        ("ana", ("ana", 1000, 1001, "/home/ana", [1001, 10, 44])),
        ("1000", ("ana", 1000, 1001, "/home/ana", [1001, 10, 44])),
        ("ana:wheel", ("ana", 1000, 10, "/home/ana", [10])),
        ("1000:5", ("ana", 1000, 5, "/home/ana", [5])),
        ("4242", ("4242", 4242, 4242, "/", [4242])),
        ("1234", ("1234", 7, 7, "/odd", [7])),
        ("homeless", ("homeless", 1002, 1002, "/", [1002])),
    ],
)
def test_found(accounts: Accounts, user: str, found: tuple[object, ...]) -> None:
    account = accounts.find(user)
    assert (account.name, account.uid, account.gid, account.home, account.groups) == found


@pytest.mark.parametrize(
    "user", ["", "nobody", "bad", "huge", "nogid", "ana:none", "-1", "4294967295", "٣", "0x0", "a\nb", ":"]
)
def test_not_found(accounts: Accounts, user: str) -> None:
    with pytest.raises(Refusal) as caught:
        accounts.find(user)
    assert caught.value.code == "INVALID_USER"


def test_a_change_is_seen(accounts: Accounts, tmp_path: Path) -> None:
    accounts.find("ana")
    (tmp_path / "passwd").write_text("ana:x:2000:2000::/new:/bin/sh\n")
    assert accounts.find("ana").uid == 2000


def test_without_files_only_numbers_are_known(tmp_path: Path) -> None:
    accounts = Accounts(str(tmp_path / "none"), str(tmp_path))
    assert accounts.find("12:13").gid == 13
    assert accounts.find("0").home == "/root"
    with pytest.raises(Refusal):
        accounts.find("root")


@given(st.binary(max_size=400), st.text(max_size=20))
@settings(max_examples=80, deadline=None)
def test_noise_is_an_account_or_a_refusal(tmp_path_factory: pytest.TempPathFactory, noise: bytes, user: str) -> None:
    folder = tmp_path_factory.mktemp("accounts")
    (folder / "passwd").write_bytes(noise)
    (folder / "group").write_bytes(noise[::-1])
    with suppress(Refusal):
        assert 0 <= Accounts(str(folder / "passwd"), str(folder / "group")).find(user).uid < 2**32
