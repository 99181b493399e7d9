"""Advice of the server, as a program and a person get it."""

from __future__ import annotations

import json
import warnings

import pytest

from installation import Installation
from kennel import Kennel, KennelWarning

pytestmark = pytest.mark.root

RAW = "ghp_" + "0123456789abcdefghij" * 2


def test_a_secrets_own_value_in_the_environment_is_warned_about(itx: Kennel, installation: Installation) -> None:
    box = itx.sandboxes.get("/sandboxes/advised")
    with pytest.warns(KennelWarning, match="GH looks like a GitHub token") as found:
        box.create(env={"GH": RAW, "PLAIN": "1"})
    assert RAW not in str(found[0].message)
    assert found[0].filename == __file__
    with pytest.warns(KennelWarning, match="OTHER"):
        view = box.set_env_vars({"OTHER": RAW})
    assert len(view.warnings) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        box.set_env_vars({"GH": 'getSecret("/secrets/gh")', "OTHER": None})
        assert box.info().warnings == []
    done = installation.cli("sandbox", "set", "advised", "--env", f"GH={RAW}", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["env"]["GH"] == RAW
    assert done.stderr.startswith(b"warning: GH looks like a GitHub token")
    assert RAW.encode() not in done.stderr
    box.destroy()
