"""Which keys may approve: those that OpenSSL calls P-256 public keys, and nothing that only looks like one."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kennel.domain.approver import check_approvers
from kennel.wire.errors import KennelError


def pem(key: PublicKeyTypes) -> str:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


GOOD = pem(ec.generate_private_key(ec.SECP256R1()).public_key())


def test_keys_of_the_curve_pass() -> None:
    check_approvers([])
    check_approvers([GOOD, f"\n{GOOD.strip()}", GOOD.replace("\n", "\r\n")])


@pytest.mark.parametrize(
    "key",
    [
        "",
        "no key",
        pem(ec.generate_private_key(ec.SECP384R1()).public_key()),
        pem(ed25519.Ed25519PrivateKey.generate().public_key()),
        pem(rsa.generate_private_key(65537, 2048).public_key()),
        GOOD.replace("PUBLIC", "PRIVATE"),
        GOOD * 2,
        GOOD[:60] + "!" + GOOD[61:],
        GOOD[:80] + GOOD[84:],
    ],
)
def test_others_are_refused(key: str) -> None:
    with pytest.raises(KennelError, match="approver 1 is no P-256 public key"):
        check_approvers([GOOD, key])
