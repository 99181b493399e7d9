"""Values that look like secrets, and those that only sound like it."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain import raw_secret

ALNUM = (string.ascii_letters + string.digits) * 2
HEX = "9f86d081884c7d659a2feaa0c55ad015"


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("ANYTHING", "ghp_" + ALNUM[:36], "GitHub"),
        ("ANYTHING", "github_pat_" + ALNUM[:60], "GitHub"),
        ("ANYTHING", f"token {'gho_' + ALNUM[:36]}", "GitHub"),
        ("ANYTHING", "glpat-" + ALNUM[:20], "GitLab"),
        ("ANYTHING", "sk-ant-api03-" + ALNUM[:40], "Anthropic"),
        ("ANYTHING", "sk-proj-" + ALNUM[:40], "OpenAI"),
        ("ANYTHING", "sk-" + ALNUM[:48], "OpenAI"),
        ("ANYTHING", "AKIAIOSFODNN7EXAMPLE", "AWS"),
        ("ANYTHING", "AIza" + ALNUM[:35], "Google"),
        ("ANYTHING", "xoxb-" + "1234567890-abcdef", "Slack"),
        ("ANYTHING", "sk_live_" + ALNUM[:24], "Stripe"),
        ("ANYTHING", "hf_" + ALNUM[:34], "Hugging Face"),
        ("ANYTHING", "npm_" + ALNUM[:36], "npm"),
        ("ANYTHING", "pypi-" + ALNUM[:40], "PyPI"),
        ("ANYTHING", "SG." + ALNUM[:22] + "." + ALNUM[:43], "SendGrid"),
        ("ANYTHING", "kn_" + ALNUM[:32], "Kennel"),
        ("ANYTHING", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "JWT"),
        ("ANYTHING", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n", "private key"),
        ("ANYTHING", "-----BEGIN PRIVATE KEY-----", "private key"),
        ("SERVICE_KEY", HEX, "secret's value"),
        ("api_key", HEX, "secret's value"),
        ("MY_TOKEN", ALNUM[5:40], "secret's value"),
        ("SECRET", ALNUM[5:40], "secret's value"),
        ("DB_PASSWORD", "hX7-pq.93_LmZ0wR", "secret's value"),
        ("PASSWORD_PROD", "hX7-pq.93_LmZ0wR", "secret's value"),
        ("MIXED_TOKEN", 'getSecret("/secrets/a") ' + "ghp_" + ALNUM[:36], "GitHub"),
        ("NOT_EVEN", "", None),
        ("OPENAI_API_KEY", 'getSecret("/secrets/openai")', None),
        ("OPENAI_API_KEY", 'getSecret("/secrets/openai", { field: "production.key" })', None),
        ("AUTH_TOKEN", 'Bearer getSecret("/secrets/x-9f86d081884c7d659a2feaa0c55ad015")', None),
        ("BUILD_ID", HEX, None),
        ("COMMIT", HEX, None),
        ("SERVICE_KEY", "changeme", None),
        ("SERVICE_KEY", "aaaaaaaaaaaaaaaaaaaaaaaa1", None),
        ("SERVICE_KEY", "a-plain-sentence-of-words", None),
        ("SSH_KEY_PATH", "/home/me/.ssh/id_ed25519_9f86d081", None),
        ("SSH_KEY", "/home/me/.ssh/id_ed25519_9f86d081", None),
        ("TOKEN_URL", "https://auth.example.com/oauth2/v2.0/token9", None),
        ("PUBLIC_KEY", HEX, None),
        ("API_KEY", "${OTHER_KEY_9f86d081884c7d65}", None),
        ("MONKEY", HEX, None),
        ("PATH", "/usr/local/bin:/usr/bin", None),
    ],
)
def test_what_is_warned_about(name: str, value: str, what: str | None) -> None:
    said = raw_secret.warnings({"FIRST": "1", name: value, "LAST": None})
    if what is None:
        assert said == []
        return
    [line] = said
    assert line.startswith(f"{name} looks like ")
    assert what in line
    assert value not in line


@given(st.dictionaries(st.sampled_from(["KEY", "A_TOKEN", "PASSWORD"]), st.text(min_size=12)))
def test_no_line_holds_its_value(env: dict[str, str]) -> None:
    for line in raw_secret.warnings(env):
        name = line.split(" ", 1)[0]
        assert env[name] not in line.replace('getSecret("/secrets/...")', "")


def test_reading_is_linear_in_the_text() -> None:
    env = {f"KEY_{number}": word * 4000 for number, word in enumerate(("getSecret(", "eyJa.", "-----BEGIN ", "sk-a-"))}
    raw_secret.warnings(env)
