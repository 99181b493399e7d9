"""What sandboxes trust, as OpenSSL and Java read it."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12

from kennel.domain.ca_trust import JAVA_PASSWORD
from kennel.gateway.authority import Authority
from kennel.node.trust import Trust


@pytest.fixture
def authority(tmp_path: Path) -> str:
    (tmp_path / "gateway").mkdir()
    return Authority(tmp_path / "gateway").pem


def java_roots(folder: Path) -> int:
    loaded = pkcs12.load_pkcs12((folder / "roots.p12").read_bytes(), JAVA_PASSWORD.encode())
    return len(loaded.additional_certs)


def test_the_authority_joins_the_roots_in_every_form(tmp_path: Path, authority: str) -> None:
    trust = Trust(tmp_path)
    folder = tmp_path / "trust"
    before = java_roots(folder) if (folder / "roots.p12").stat().st_size else 0
    trust.learn(authority)
    assert (folder / "authority.pem").read_text() == authority
    assert (folder / "roots.pem").read_text().endswith(authority)
    assert java_roots(folder) == before + 1
    assert [link.read_text() for link in (folder / "hashed").iterdir()] == [authority]
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.*")} == {0o444}
    [told] = json.loads((folder / "chromium.json").read_text())["CACertificates"]
    assert x509.load_der_x509_certificate(base64.b64decode(told)) == x509.load_pem_x509_certificate(authority.encode())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_openssl_finds_it_by_its_hash(tmp_path: Path, authority: str) -> None:
    Trust(tmp_path).learn(authority)
    words = ["openssl", "x509", "-hash", "-noout", "-in", str(tmp_path / "trust/authority.pem")]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    assert [link.name for link in (tmp_path / "trust/hashed").iterdir()] == [f"{told}.0"]


def test_another_authority_replaces_it(tmp_path: Path, authority: str) -> None:
    Trust(tmp_path).learn(authority)
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other").pem
    Trust(tmp_path).learn(other)
    assert (tmp_path / "trust/roots.pem").read_text().endswith(other)
    assert authority not in (tmp_path / "trust/roots.pem").read_text()
    assert [link.read_text() for link in (tmp_path / "trust/hashed").iterdir()] == [other]


@pytest.mark.parametrize("said", ["", "no certificate", "-----BEGIN CERTIFICATE-----\n\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_refused(tmp_path: Path, said: str) -> None:
    with pytest.raises(ValueError, match="no certificate"):
        Trust(tmp_path).learn(said)


def test_every_program_is_told_where() -> None:
    told = dict(word.split("=", 1) for word in Trust.variables())
    assert told["SSL_CERT_DIR"] == "/.kennel/trust/hashed:/etc/ssl/certs"
    assert "/.kennel/trust/roots.p12" in told["JAVA_TOOL_OPTIONS"]
