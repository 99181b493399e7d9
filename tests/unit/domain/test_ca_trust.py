"""Which variables make programs trust the gateway."""

from __future__ import annotations

from kennel.domain.ca_trust import AUTHORITY, BUNDLE, trust_variables


def test_every_client_is_told() -> None:
    found = trust_variables(java="/x.p12")
    assert found["SSL_CERT_FILE"] == found["REQUESTS_CA_BUNDLE"] == BUNDLE
    assert found["NODE_EXTRA_CA_CERTS"] == AUTHORITY
    assert "-Djavax.net.ssl.trustStore=/x.p12" in found["JAVA_TOOL_OPTIONS"]
    assert "JAVA_TOOL_OPTIONS" not in trust_variables()
