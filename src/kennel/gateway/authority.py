"""Owns the certificate authority that sandboxes trust: its key on disk, leaves for exact names in memory.

Called by the entrance for every intercepted TLS connection. Invariant: the authority's key is a 0600 file, its path
length 0; a leaf names one host, lives a week, and its key never touches a disk.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
import ssl
import time
from collections import OrderedDict
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kennel.domain.egress_host import literal
from kennel.gateway.vault import write_private

_YEARS = datetime.timedelta(days=3650)
_LEAF = datetime.timedelta(days=7)
_REFRESH = 5 * 24 * 3600.0
_CACHED = 2048


class Authority:
    """One certificate authority per installation."""

    def __init__(self, folder: Path) -> None:
        self._certificate, self._key = _load(folder)
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_pem = _private_pem(self._leaf_key)
        self._contexts: OrderedDict[str, tuple[ssl.SSLContext, float]] = OrderedDict()

    @property
    def pem(self) -> str:
        """The authority's certificate, which sandboxes add to their roots."""
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def context(self, host: str) -> ssl.SSLContext:
        """A server's TLS context with a leaf for exactly this name or address; made once (0.8 ms), then kept."""
        known = self._contexts.get(host)
        if known is not None and time.monotonic() < known[1]:
            self._contexts.move_to_end(host)
            return known[0]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.set_alpn_protocols(["http/1.1"])
        _load_chain(context, self.chain(host))
        self._contexts[host] = (context, time.monotonic() + _REFRESH)
        while len(self._contexts) > _CACHED:
            self._contexts.popitem(last=False)
        return context

    def chain(self, host: str) -> bytes:
        """A leaf for this name, the authority's certificate, and the leaf's key (PEM)."""
        return self._leaf(host) + self.pem.encode() + self._leaf_pem

    def _leaf(self, host: str) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        address = literal(host)
        name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host)) if address else x509.DNSName(host)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH]
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        # A common name holds 64 characters at most; the name that counts is the alternative one.
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, host)] if len(host) <= 64 else []
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(subject))
            .issuer_name(self._certificate.subject)
            .public_key(self._leaf_key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + _LEAF - datetime.timedelta(hours=1))
            .add_extension(x509.SubjectAlternativeName([name]), critical=not subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(leaf=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._leaf_key.public_key()), critical=False)
            .add_extension(signer, critical=False)
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _load(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The authority on disk; made at the first start. Key and certificate lie in one file, so they always match."""
    file = folder / "authority.pem"
    if not file.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _self_signed(key)
        write_private(file, _private_pem(key) + certificate.public_bytes(serialization.Encoding.PEM))
    content = file.read_bytes()
    loaded = serialization.load_pem_private_key(content, None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{file} holds no elliptic curve key")
    return x509.load_pem_x509_certificate(content), loaded


def _self_signed(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Kennel egress {secrets.token_hex(4)}")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _YEARS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(leaf=False), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )


def _usage(*, leaf: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=leaf,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=not leaf,
        crl_sign=not leaf,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    encryption = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def _load_chain(context: ssl.SSLContext, pem: bytes) -> None:
    # The ssl module reads chains from files only; an anonymous file in memory keeps the key off every disk.
    descriptor = os.memfd_create("leaf", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
