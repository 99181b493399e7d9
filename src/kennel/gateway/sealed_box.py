"""Owns the sealing of secrets: X25519 with a key of its own per box, HKDF-SHA256, AES-256-GCM.

Called by the gateway (opening; sealing what it rotated) and by adapters/vault for control (sealing only). Invariant:
a box opens only with the project's private key and exactly the context it was sealed with.
"""

from __future__ import annotations

import base64
import hashlib
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_NONCE, _PUBLIC = 12, 32


class SealBroken(ValueError):
    """A box that this key and context do not open."""


def kid_of(public: bytes) -> str:
    """The name of a key pair: the first 16 hex digits of its public half's SHA-256."""
    return hashlib.sha256(public).hexdigest()[:16]


def seal(public: bytes, plain: bytes, context: bytes) -> str:
    """A box (base64): ephemeral public key, nonce, ciphertext with tag."""
    ephemeral = X25519PrivateKey.generate()
    shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(public))
    mine = ephemeral.public_key().public_bytes_raw()
    nonce = os.urandom(_NONCE)
    sealed = AESGCM(_key(shared, mine, public)).encrypt(nonce, plain, context)
    return base64.b64encode(mine + nonce + sealed).decode()


def unseal(private: X25519PrivateKey, box: str, context: bytes) -> bytes:
    """What is in a box; SealBroken for another key, another context, or bytes that are no box."""
    try:
        raw = base64.b64decode(box, validate=True)
        theirs, nonce, sealed = raw[:_PUBLIC], raw[_PUBLIC : _PUBLIC + _NONCE], raw[_PUBLIC + _NONCE :]
        shared = private.exchange(X25519PublicKey.from_public_bytes(theirs))
        key = _key(shared, theirs, private.public_key().public_bytes_raw())
        return AESGCM(key).decrypt(nonce, sealed, context)
    except (ValueError, InvalidTag) as failure:
        raise SealBroken("the box does not open") from failure


def _key(shared: bytes, ephemeral: bytes, public: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt=ephemeral + public, info=b"kennel secret v1").derive(shared)
