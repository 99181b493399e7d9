"""How new material is asked for, and what an answer has to hold."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from kennel.domain.denial import Refused
from kennel.gateway import strategies
from kennel.wire.egress import Refresh

NOW = 1_700_000_000.0
REFRESH = Refresh("oauth-refresh-token", "https://id.example.com/oauth/token?tenant=a", "read write")
CLIENT = Refresh("oauth-client-credentials", "https://id.example.com/token")
APP = Refresh("github-app-installation", "https://api.github.com")
OAUTH = {"refreshToken": "r-1", "clientId": "c", "clientSecret": "s:/ s"}


def test_a_refresh_token_with_a_secret_client() -> None:
    asked = strategies.ask(REFRESH, OAUTH)
    assert asked.target == "/oauth/token?tenant=a"
    assert parse_qs(asked.body.decode()) == {
        "grant_type": ["refresh_token"], "refresh_token": ["r-1"], "scope": ["read write"],
    }  # fmt: skip
    assert (b"authorization", b"Basic " + base64.b64encode(b"c:s%3A%2F%20s")) in asked.headers


def test_a_public_client_names_itself_in_the_form() -> None:
    asked = strategies.ask(REFRESH, {"refreshToken": "r", "clientId": "pub"})
    assert parse_qs(asked.body.decode())["client_id"] == ["pub"]
    assert not any(name == b"authorization" for name, _ in asked.headers)


def test_client_credentials() -> None:
    asked = strategies.ask(CLIENT, {"clientId": "c", "clientSecret": "s"})
    assert parse_qs(asked.body.decode()) == {"grant_type": ["client_credentials"]}


def test_an_app_signs_for_its_installation() -> None:
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    ).decode()
    asked = strategies.ask(APP, {"appId": "7", "installationId": "42/../1", "privateKey": pem})
    assert asked.target == "/app/installations/42%2F..%2F1/access_tokens"
    [bearer] = [value for name, value in asked.headers if name == b"authorization"]
    signed, _, signature = bearer.removeprefix(b"Bearer ").rpartition(b".")
    key.public_key().verify(base64.urlsafe_b64decode(signature + b"=="), signed, padding.PKCS1v15(), SHA256())
    claims = json.loads(base64.urlsafe_b64decode(signed.split(b".")[1] + b"=="))
    assert claims["iss"] == "7"
    assert 0 < claims["exp"] - claims["iat"] <= 600


def test_what_came_is_taken_over() -> None:
    body = json.dumps({"access_token": "a-2", "refresh_token": "r-2", "expires_in": 3600}).encode()
    fresh = strategies.adopt(REFRESH, {**OAUTH, "expiresAt": 1}, 200, body, NOW)
    assert fresh == {**OAUTH, "accessToken": "a-2", "refreshToken": "r-2", "expiresAt": int((NOW + 3600) * 1000)}
    fresh = strategies.adopt(REFRESH, {**OAUTH, "expiresAt": 1}, 200, b'{"access_token": "a-3"}', NOW)
    assert fresh == {**OAUTH, "accessToken": "a-3"}
    github = b'{"token": "ghs_1", "expires_at": "2023-11-14T23:13:20Z", "refresh_token": "no"}'
    fresh = strategies.adopt(APP, {"appId": "7"}, 201, github, NOW)
    assert fresh == {"appId": "7", "accessToken": "ghs_1", "expiresAt": 1_700_003_600_000}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b'{"access_token": "a"}'), (302, b""), (200, b""), (200, b"not json"), (200, b"[1]"), (200, b'"a"'),
        (200, b"{}"), (200, b'{"access_token": 5}'), (200, b'{"access_token": ""}'),
        (200, json.dumps({"access_token": "a" * 16_385}).encode()), (200, b"[" * 100_000),
    ],
)  # fmt: skip
def test_an_answer_without_a_token_is_refused_without_its_words(status: int, body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        strategies.adopt(REFRESH, OAUTH, status, body, NOW)
    assert refused.value.code == "secret_refresh_failed"
    assert "aaaa" not in refused.value.detail


@pytest.mark.parametrize(
    ("material", "field", "expected"),
    [
        ({}, "accessToken", True),
        ({"accessToken": "a"}, "accessToken", False),
        ({"accessToken": "a", "expiresAt": int(NOW * 1000) + 59_000}, "accessToken", True),
        ({"accessToken": "a", "expiresAt": int(NOW * 1000) + 61_000}, "accessToken", False),
        ({"accessToken": "a", "expiresAt": "soon"}, "accessToken", False),
        ({"clientId": "c", "expiresAt": 1}, "clientId", False),
        ({}, "a.b", False),
        ({}, None, False),
    ],
)
def test_when_material_is_stale(material: dict[str, Any], field: str | None, expected: bool) -> None:
    assert strategies.stale(material, field, NOW) is expected


@pytest.mark.parametrize("missing", ["refreshToken", "clientId"])
def test_material_that_lacks_a_part(missing: str) -> None:
    with pytest.raises(Refused, match=missing):
        strategies.ask(REFRESH, {**OAUTH, missing: None, "clientSecret": ""})
