import msgspec
import pytest

from kennel.domain.layer import LayerInfo, digest
from kennel.wire.errors import InvalidRequest

GOOD = "0123456789abcdef" * 4


def test_a_digest_is_64_hexadecimal_digits() -> None:
    assert digest(GOOD) == GOOD


@pytest.mark.parametrize(
    "bad", ["", GOOD[:-1], GOOD + "0", GOOD.upper(), "../" + GOOD[3:], GOOD[:-1] + "\n", GOOD + "\n"]
)
def test_anything_else_is_refused(bad: str) -> None:
    with pytest.raises(InvalidRequest):
        digest(bad)


def test_a_layer_travels_in_camel_case() -> None:
    layer = LayerInfo(GOOD, 1, 2, 3, 4, 5)
    words = msgspec.to_builtins(layer)
    assert words == {"digest": GOOD, "size": 1, "unpacked": 2, "entries": 3, "leftOut": 4, "leftOutBytes": 5}
    assert msgspec.convert(words, LayerInfo) == layer
