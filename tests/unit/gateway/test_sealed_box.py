"""Boxes open with one key and one context; any other byte breaks them."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from kennel.gateway.sealed_box import SealBroken, seal, unseal

KEY = X25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw()


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_what_was_sealed_comes_back(plain: bytes, context: bytes) -> None:
    box = seal(PUBLIC, plain, context)
    assert unseal(KEY, box, context) == plain
    assert seal(PUBLIC, plain, context) != box
    with pytest.raises(SealBroken):
        unseal(KEY, box, context + b"x")
    with pytest.raises(SealBroken):
        unseal(X25519PrivateKey.generate(), box, context)


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_byte_breaks_it(at: int, change: int) -> None:
    raw = bytearray(base64.b64decode(seal(PUBLIC, b"the material of a secret" * 6, b"context")))
    raw[at % len(raw)] ^= change
    # The top bit of an X25519 point is ignored by its definition; it is in the key's salt all the same.
    with pytest.raises(SealBroken):
        unseal(KEY, base64.b64encode(raw).decode(), b"context")


@given(st.text(max_size=100))
def test_any_text_is_no_box(text: str) -> None:
    with pytest.raises(SealBroken):
        unseal(KEY, text, b"")
