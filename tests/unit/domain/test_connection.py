"""What a GitHub connection is made of, and what it plants."""

from __future__ import annotations

import base64

import pytest

from kennel.domain import connection
from kennel.wire.errors import KennelError

PLANTED = 'getSecret("/secrets/integrations/github/%s", { field: "accessToken" })'


def header(token: str) -> str:
    return "Authorization: Basic " + base64.b64encode(f"x-access-token:{token}".encode()).decode()


def test_the_first_by_name_is_planted_and_git_is_told() -> None:
    found = connection.planted(["install-9", "install-10"], {})
    assert found["GH_TOKEN"] == PLANTED % "install-10"
    assert found["GIT_CONFIG_VALUE_0"] == header(PLANTED % "install-10")
    assert found["GIT_CONFIG_KEY_0"] == "http.https://github.com/.extraheader"


@pytest.mark.parametrize(
    ("names", "env", "token", "header_of"),
    [
        ([], {}, None, None),
        ([], {"GH_TOKEN": "mine"}, None, "mine"),
        (["a"], {"GH_TOKEN": "mine"}, PLANTED % "a", "mine"),
        (["a"], {"GH_TOKEN": ""}, PLANTED % "a", None),
    ],
)
def test_a_variable_of_the_sandboxs_own_comes_first(
    names: list[str], env: dict[str, str], token: str | None, header_of: str | None
) -> None:
    found = connection.planted(names, env)
    assert found.get("GH_TOKEN") == token
    assert found.get("GIT_CONFIG_VALUE_0") == (None if header_of is None else header(header_of))


def test_what_was_taken_away_is_not_planted() -> None:
    assert connection.planted(["a"], {}, ("GH_TOKEN",)) == {}
    assert "GH_TOKEN" not in connection.planted(["a"], {"GH_TOKEN": "mine"}, ("GH_TOKEN",))


def test_material_is_a_token_or_an_app() -> None:
    material, pin, refresh = connection.material_of("ghp_x", None, None, None)
    assert (material, refresh) == ({"accessToken": "ghp_x"}, None)
    assert "https://github.com" in pin.origins
    _, _, refresh = connection.material_of(None, "1", "2", "pem")
    assert refresh is not None
    assert refresh.strategy == "github-app-installation"
    for words in ((None, None, None, None), ("t", "1", None, None), (None, "1", "2", None), ("", "", "", "")):
        with pytest.raises(KennelError, match="a connection is"):
            connection.material_of(*words)


@pytest.mark.parametrize("name", ["", "a/b", ".a", "a b", "a" * 65, "a%2f", "é"])
def test_names_are_plain(name: str) -> None:
    with pytest.raises(KennelError, match="1 to 64"):
        connection.path_of(name)
