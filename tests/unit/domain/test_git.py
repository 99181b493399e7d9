"""Git's words: addresses, secrets, why it failed, what a status says."""

from __future__ import annotations

import pytest

from kennel.domain.git import check_branch, failure, parse_status, redacted, repository
from kennel.wire.errors import KennelError


@pytest.mark.parametrize(
    ("url", "plain", "name", "pair"),
    [
        ("https://github.com/a/b.git", "https://github.com/a/b.git", "b", (None, None)),
        ("https://u:p%40ss@h:8443/a/b/", "https://h:8443/a/b/", "b", ("u", "p@ss")),
        ("https://token@h/b", "https://h/b", "b", ("token", None)),
        ("git@github.com:a/b.git", "git@github.com:a/b.git", "b", (None, None)),
        ("ssh://git@h:22/a/b.git", "ssh://git@h:22/a/b.git", "b", (None, None)),
        ("file:///srv/b.git", "file:///srv/b.git", "b", (None, None)),
        ("git://h/b", "git://h/b", "b", (None, None)),
    ],
)
def test_addresses(url: str, plain: str, name: str, pair: tuple[str | None, str | None]) -> None:
    found = repository(url)
    assert (found.url, found.name, (found.username, found.password)) == (plain, name, pair)


@pytest.mark.parametrize(
    "url",
    [
        "", "-x", "--upload-pack=x", "ext::sh -c x", "ftp://h/x", "https://", "https:///x", "https://h", "https://h/..",
        "https://h/a b", "https://h/a\nb", "ssh://u:p@h/x", "https://h:x/y", "https://h/" + "a" * 2048, "/srv/x", "x",
        "https://h/%2e%2e", "https://h/a%2Fb", "git@h:-x y",
    ],
)  # fmt: skip
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(KennelError) as caught:
        repository(url)
    assert caught.value.code == "INVALID_GIT_URL"


@pytest.mark.parametrize("name", ["main", "feature/x-1", "v1.2.3", "\u00fcber"])
def test_branches(name: str) -> None:
    assert check_branch(name) == name


@pytest.mark.parametrize("name", ["", "-f", "a..b", "a b", "a~1", "a.lock", "/a", "a/", "a@{1}", "x" * 256, "a:b", "."])
def test_what_is_no_branch(name: str) -> None:
    with pytest.raises(KennelError):
        check_branch(name)


def test_secrets_are_hidden_in_every_form() -> None:
    text = "fatal: https://bob:p%40ssword@h/x p@ssword bob"
    assert redacted(text, "p@ssword", "bob") == "fatal: https://***@h/x *** bob"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("fatal: Remote branch zip not found in upstream origin", "GIT_BRANCH_NOT_FOUND"),
        ("fatal: repository 'http://h/x/' not found", "GIT_REPOSITORY_NOT_FOUND"),
        ("fatal: '/tmp/nope' does not appear to be a git repository", "GIT_REPOSITORY_NOT_FOUND"),
        ("fatal: could not read Username for 'https://h': terminal prompts disabled", "GIT_AUTH_FAILED"),
        ("fatal: Authentication failed for 'https://h/'", "GIT_AUTH_FAILED"),
        ("fatal: unable to access 'http://h/': Could not resolve host: h", "GIT_NETWORK_ERROR"),
        ("fatal: unable to access 'http://h/': The requested URL returned error: 403", "GIT_AUTH_FAILED"),
        ("fatal: write error: No space left on device", "NO_SPACE"),
        ("fatal: destination path 'x' already exists", "GIT_CLONE_FAILED"),
    ],
)
def test_why_it_failed(words: str, code: str) -> None:
    found = failure(128, words, timed_out=False, fallback="GIT_CLONE_FAILED", details={})
    assert (found.code, found.details["exitCode"], found.admitted) == (code, 128, "yes")


def test_out_of_time_and_no_git() -> None:
    assert failure(124, "", timed_out=True, fallback="X", details={}).code == "GIT_NETWORK_ERROR"
    assert failure(127, "", timed_out=False, fallback="X", details={}).code == "NOT_SUPPORTED"


def test_a_secret_is_in_no_failure() -> None:
    found = failure(
        1, "fatal: sekret and more", timed_out=False, fallback="GIT_OPERATION_FAILED", details={}, secrets=("sekret",)
    )
    assert "sekret" not in str(found.to_wire())


def test_a_status() -> None:
    text = (
        "# branch.oid abc\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +2 -1\0"
        "1 M. N... 100644 100644 100644 a b staged file\0"
        "2 R. N... 100644 100644 100644 a b R100 new name\0old name\0"
        "u UU N... 100644 100644 100644 100644 a b c both\0? odd\nname\0"
    )
    told = parse_status(text.encode())
    assert (told["branch"], told["commit"], told["ahead"], told["behind"]) == ("main", "abc", 2, 1)
    assert [(f["path"], f["index"] + f["worktree"], f["original"]) for f in told["files"]] == [
        ("staged file", "M ", None), ("new name", "R ", "old name"), ("both", "UU", None), ("odd\nname", "??", None),
    ]  # fmt: skip
    assert told["clean"] is False
    assert parse_status(b"# branch.oid (initial)\0# branch.head (detached)\0")["clean"] is True
