"""The installation's authority: what its certificates may do, for how long, and who can read its key."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from kennel.gateway.authority import Authority

DAY = datetime.timedelta(days=1)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def leaf(authority: Authority, host: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(authority.chain(host))


def shaken(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """The version of TLS that both agree on; ssl.SSLError when the client does not trust what it sees."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    mine = client.wrap_bio(back, there, server_hostname=name)
    theirs = server.wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for side in (mine, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return str(mine.version())


def test_it_is_made_once_and_its_key_is_its_own(authority: Authority, tmp_path: Path) -> None:
    assert Authority(tmp_path).pem == authority.pem
    assert (tmp_path / "authority.pem").stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in authority.pem
    (tmp_path / "other").mkdir()
    other = x509.load_pem_x509_certificate(Authority(tmp_path / "other").pem.encode())
    assert other.subject != x509.load_pem_x509_certificate(authority.pem.encode()).subject


def test_it_may_sign_leaves_and_nothing_below_them(authority: Authority) -> None:
    own = x509.load_pem_x509_certificate(authority.pem.encode())
    limits = own.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (limits.critical, limits.value.ca, limits.value.path_length) == (True, True, 0)
    usage = own.extensions.get_extension_for_class(x509.KeyUsage)
    assert (usage.critical, usage.value.key_cert_sign, usage.value.digital_signature) == (True, True, False)


@pytest.mark.parametrize("host", ["a.example.com", "93.184.216.34", "2606:2800:220:1::34", "x" * 60 + "." + "y" * 60])
def test_a_leaf_names_one_host_for_a_week(authority: Authority, host: str) -> None:
    made = leaf(authority, host)
    [name] = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert str(name.value) == host
    assert made.not_valid_after_utc - made.not_valid_before_utc <= 7 * DAY
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    uses = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.SERVER_AUTH]
    made.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.pem.encode()))


@pytest.mark.parametrize("host", ["a.example.com", "93.184.216.34"])
def test_the_strictest_clients_take_it(authority: Authority, host: str) -> None:
    client = ssl.create_default_context(cadata=authority.pem)
    client.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    assert shaken(authority.context(host), client, host) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(authority.context(host), client, "b.example.com")
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(authority.context(host), ssl.create_default_context(), host)


def test_old_versions_are_not_spoken(authority: Authority) -> None:
    client = ssl.create_default_context(cadata=authority.pem)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert shaken(authority.context("a.example.com"), client, "a.example.com") == "TLSv1.2"
    assert authority.context("a.example.com").minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_hosts_context_is_kept_and_bounded(authority: Authority) -> None:
    first = authority.context("a.example.com")
    assert authority.context("a.example.com") is first
    assert authority.context("b.example.com") is not first
