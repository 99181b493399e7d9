"""Owns how a sandbox's programs are told to trust the gateway's authority: variables beside the distribution's bundle.

Called when a sandbox's root is assembled and its environment planted. Invariant: these variables replace a client's
roots (all but Node's), so they name a bundle that holds the system's roots and the authority together.
"""

from __future__ import annotations

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
"""Debian's bundle; the authority is appended to it (curl, git, wget, Python's ssl, apt)."""

AUTHORITY = "/etc/ssl/certs/kennel-egress.pem"
"""The authority alone, for Node, which adds to its own roots."""

JAVA_STORE = "/etc/ssl/certs/kennel-egress.p12"
"""A PKCS12 store of all roots with the authority; its password is `changeit`, as Java's own."""


HASHED = "/etc/ssl/certs"
"""Where distributions keep single roots under the hash of their name (OpenSSL's -CApath, Ruby, Perl)."""

JAVA_PASSWORD = "changeit"
"""No secret: a store of certificates has nothing to hide, and Java wants a password."""


def trust_variables(
    *, bundle: str = BUNDLE, authority: str = AUTHORITY, java: str | None = None, hashed: str | None = None
) -> dict[str, str]:
    """The variables to plant; `java` is the path of a PKCS12 store and `hashed` a folder of links, where they exist."""
    replaced = (
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "PIP_CERT",
        "GIT_SSL_CAINFO",
        "CARGO_HTTP_CAINFO",
        "AWS_CA_BUNDLE",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
        "NIX_SSL_CERT_FILE",
        "DENO_CERT",
    )
    variables = dict.fromkeys(replaced, bundle) | {"NODE_EXTRA_CA_CERTS": authority}
    if hashed is not None:
        variables["SSL_CERT_DIR"] = f"{hashed}:{HASHED}"
    if java is not None:
        store = f"-Djavax.net.ssl.trustStore={java} -Djavax.net.ssl.trustStorePassword={JAVA_PASSWORD}"
        variables["JAVA_TOOL_OPTIONS"] = f"{store} -Djavax.net.ssl.trustStoreType=PKCS12"
    return variables
