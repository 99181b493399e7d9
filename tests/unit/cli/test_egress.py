"""Commands of the way out: what each sends, what it prints, and that nothing of a policy is lost on the way."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from kennel.cli.__main__ import run

RULE = {"ruleKey": "r", "verdict": "deny", "match": {"hosts": ["a.example.com"]}}
POLICY = {"rules": [RULE], "default": "deny", "auditOnly": True, "approvers": ["PEM"], "version": 7}
SECRET = {
    "path": "/secrets/a", "pin": {"origins": ["https://a.example.com:443"]}, "createdAt": "2026-01-01T00:00:00Z",
    "updatedAt": "2026-01-01T00:00:00Z",
}  # fmt: skip
CANARY = "sk-canary-77"


def given(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_policy_goes_back_whole(standin: Any, shapes: Any, tmp_path: Path) -> None:
    standin.will(shapes.Answer(200, POLICY))
    (tmp_path / "policy.json").write_text(json.dumps(POLICY))
    assert run(["egress", "rules", "--set", str(tmp_path / "policy.json"), "--url", standin.url]) == 0
    assert standin.seen[0].json == {name: value for name, value in POLICY.items() if name != "version"}


def test_an_unknown_part_of_a_policy_is_an_error(standin: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "policy.json").write_text('{"rules": [], "aprovers": ["PEM"]}')
    assert run(["egress", "rules", "--set", str(tmp_path / "policy.json"), "--url", standin.url]) == 2
    assert "aprovers" in capsys.readouterr().err
    assert standin.seen == []


def test_replay_says_what_would_change(standin: Any, shapes: Any, monkeypatch: Any, capsys: Any) -> None:
    row = {
        "offset": 9, "at": 1, "sandbox": "/sandboxes/x", "method": "GET", "url": "https://a.example.com/\x1b[31m",
        "was": "allow", "would": "deny", "ruleKey": "r",
    }  # fmt: skip
    told = {"considered": 3, "allow": 2, "deny": 1, "hold": 0, "differing": 1, "changed": [row]}
    standin.will(shapes.Answer(200, told))
    given(monkeypatch, json.dumps(POLICY))
    assert run(["egress", "replay", "-", "--last", "50", "--url", standin.url]) == 0
    assert standin.seen[0].json == {"policy": {"rules": [RULE], "default": "deny", "auditOnly": True}, "last": 50}
    out = capsys.readouterr().out
    assert "3 requests: 2 allowed, 1 denied, 0 held; 1 otherwise" in out
    assert "allow -> deny" in out
    assert "\x1b" not in out


def test_hosts_are_a_table(standin: Any, shapes: Any, capsys: Any) -> None:
    row = {"host": "a.example.com", "requests": 3, "denied": 1, "bytesOut": 10, "bytesIn": 20}
    standin.will(shapes.Answer(200, {"hosts": [row]}))
    assert run(["egress", "hosts", "--url", standin.url]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["a.example.com", "3", "1", "10", "20"]


def test_a_secret_comes_from_stdin_and_is_in_no_output(
    standin: Any, shapes: Any, monkeypatch: Any, capsys: Any
) -> None:
    standin.will(shapes.Answer(200, SECRET))
    given(monkeypatch, CANARY + "\n")
    words = ["secret", "set", "a", "--origin", "https://a.example.com", "--url", standin.url]
    assert run(words) == 0
    assert standin.seen[0].json == {"material": CANARY, "origins": ["https://a.example.com"]}
    said = capsys.readouterr()
    assert CANARY not in said.out + said.err


def test_a_secret_that_is_refreshed(standin: Any, shapes: Any, monkeypatch: Any) -> None:
    standin.will(shapes.Answer(200, SECRET))
    given(monkeypatch, '{"clientId": "c", "clientSecret": "s"}')
    refresh = ["--refresh", "oauth-client-credentials", "--endpoint", "https://a.example.com/token"]
    words = ["secret", "set", "a", "--origin", "https://a.example.com", *refresh, "--url", standin.url]
    assert run(words) == 0
    assert standin.seen[0].json["material"] == {"clientId": "c", "clientSecret": "s"}
    assert standin.seen[0].json["refresh"] == {
        "strategy": "oauth-client-credentials", "endpoint": "https://a.example.com/token",
    }  # fmt: skip
    assert run(["secret", "set", "a", "--origin", "https://a.example.com", *refresh[:2], "--url", standin.url]) == 2


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ([], {"token": CANARY}),
        (["--app-id", "7", "--installation-id", "8"],
         {"appId": "7", "installationId": "8", "privateKey": CANARY + "\n"}),
    ],
)  # fmt: skip
def test_a_connection_is_made_of_stdin(
    standin: Any, shapes: Any, monkeypatch: Any, capsys: Any, words: list[str], sent: dict[str, str]
) -> None:
    made = {**SECRET, "name": "main", "kind": "token", "secret": "/secrets/integrations/github/main"}
    standin.will(shapes.Answer(200, made))
    given(monkeypatch, CANARY + "\n")
    assert run(["github", "connect", "main", *words, "--url", standin.url]) == 0
    assert (standin.seen[0].json, standin.seen[0].path) == (sent, "/v1/projects/default/connections/github/main")
    assert CANARY not in capsys.readouterr().out


def test_half_an_app_is_misuse(standin: Any) -> None:
    assert run(["github", "connect", "main", "--app-id", "7", "--url", standin.url]) == 2
    assert standin.seen == []
