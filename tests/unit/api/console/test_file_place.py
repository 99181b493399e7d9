"""Paths of files in addresses, forms and pages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kennel.api.console.file_place import Place, asked, new_name, sent
from kennel.api.console.forms import Form
from kennel.wire.errors import KennelError

PATHS = [b"/", b"/a", b"/a b/+&=%#?;", b"/\xff\xfe\n", "/ü/\u202e".encode(), b"/<img src=x>"]


def _visit(query: bytes = b"", **form: str) -> Any:
    return SimpleNamespace(request=SimpleNamespace(scope={"query_string": query}), form=Form(list(form.items())))


@pytest.mark.parametrize("path", PATHS)
def test_a_path_goes_out_and_comes_back_byte_for_byte(path: bytes) -> None:
    query = Place(path).query.removeprefix("?")
    assert query.isascii()
    assert not set(query) & set("\"'<> #&;")
    assert asked(_visit(query.encode() + b"&after=x")).path == path
    assert sent(_visit(at=Place(path).sealed)).path == path


@pytest.mark.parametrize("query", [b"", b"path=", b"path=relative", b"path=/a%00b", b"other=/a"])
def test_an_address_without_a_path_is_refused(query: bytes) -> None:
    with pytest.raises(KennelError) as caught:
        asked(_visit(query))
    assert caught.value.code == "INVALID_PATH"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b"])
def test_a_name_is_one_part_of_a_path(name: str) -> None:
    with pytest.raises(KennelError):
        new_name(_visit(name=name))


def test_names_show_what_would_move_or_hide_others() -> None:
    assert Place("/x/a\n\t\x1b[31m\u202eb\x7f\u2066".encode()).name == "a␊␉␛[31m\ufffdb␡\ufffd"
    assert Place(b"/x/\xff").name == "\ufffd"
    assert [crumb.path for crumb in Place(b"/a//b/").crumbs] == [b"/", b"/a", b"/a/b"]
    assert (Place(b"/a").above.path, Place(b"/").above.path, Place(b"/").root) == (b"/", b"/", True)
    assert Place(b"/").below(b"x").path == b"/x"
