"""Which of several answers to "where is the server" counts, and where the key may go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kennel.sdk.discovery import DEFAULT_URL, checked_url, default_data, discover
from kennel.wire.errors import Forbidden, InvalidRequest


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "url").write_text("http://127.0.0.1:9001\n")
    (tmp_path / "admin.key").write_text("kn_local\n")
    return tmp_path


def test_the_installation_is_the_last_resort(data: Path) -> None:
    found = discover(data=data, environ={})
    assert (found.url, found.api_key, found.project) == ("http://127.0.0.1:9001", "kn_local", "default")
    assert discover(environ={"KENNEL_DATA": str(data)}) == found


def test_variables_beat_the_installation(data: Path) -> None:
    environ = {"KENNEL_URL": "https://far.example/", "KENNEL_API_KEY": "kn_env", "KENNEL_PROJECT": "p"}
    found = discover(data=data, environ=environ)
    assert (found.url, found.api_key, found.project) == ("https://far.example", "kn_env", "p")


def test_arguments_beat_variables(data: Path, tmp_path: Path) -> None:
    environ = {
        "KENNEL_URL": "https://far.example",
        "KENNEL_API_KEY": "kn_env",
        "KENNEL_PROJECT": "p",
        "KENNEL_DATA": str(tmp_path / "other"),
    }
    found = discover(url="http://near.example:1", api_key="kn_arg", project="q", data=data, environ=environ)
    assert (found.url, found.api_key, found.project) == ("http://near.example:1", "kn_arg", "q")


def test_the_local_key_goes_nowhere_else(data: Path) -> None:
    for url in ("https://far.example", "http://127.0.0.1:9002", "http://127.0.0.1.far.example:9001"):
        assert discover(url=url, data=data, environ={}).api_key is None
    assert discover(url="http://127.0.0.1:9001/", data=data, environ={}).api_key == "kn_local"
    assert discover(data=data, environ={"KENNEL_URL": "https://far.example"}).api_key is None


def test_nothing_found_is_the_usual_port_without_a_key(tmp_path: Path) -> None:
    found = discover(data=tmp_path / "absent", environ={})
    assert (found.url, found.api_key) == (DEFAULT_URL, None)
    assert discover(data=Path("/dev/null"), environ={}).url == DEFAULT_URL


def test_the_usual_folder_depends_on_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_data(root=True) == Path("/var/lib/kennel")
    assert default_data(root=False) == tmp_path / ".local/share/kennel"
    assert default_data() == default_data(root=os.geteuid() == 0)


@pytest.mark.parametrize(
    "text",
    ["", "far.example", "ftp://far.example", "http://", "http://a:99999", "http://u:p@a", "http://a/?q", "http://a\n"],
)
def test_what_is_no_url_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        checked_url(text)


@pytest.mark.parametrize("text", ["http://[::1]:8787", "https://kennel.example/prefix", "http://localhost:1"])
def test_what_is_a_url_is_kept(text: str) -> None:
    assert checked_url(text + "/") == text


@pytest.mark.parametrize("key", ["two words", "kn_\x00", "kn_é", "kn_\n x"])
def test_a_key_that_cannot_be_one_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequest):
        discover(api_key=key, environ={}, data="/nonexistent")


def test_a_key_file_of_someone_else_says_so(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def guarded(self: Path, *args: object, **kwargs: object) -> object:
        if self.name == "admin.key":
            raise PermissionError(13, "Permission denied")
        return real(self, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", guarded)
    with pytest.raises(Forbidden) as caught:
        discover(data=data, environ={})
    assert "KENNEL_API_KEY" in str(caught.value.hint)
    assert discover(data=data, environ={"KENNEL_API_KEY": "kn_env"}).api_key == "kn_env"


def test_a_key_is_not_in_a_repr(data: Path) -> None:
    assert "kn_local" not in repr(discover(data=data, environ={}))
