"""A self-signed certificate for tests, with its key, in memory.

Every peer can make one like it: it encrypts the bytes, and proves nothing about the
server. Needs the package `cryptography`, the extra `test-tls`.
"""

import os
import ssl
from datetime import UTC, datetime, timedelta
from typing import Final

from rmq.core.errors import BadValue

NAME: Final = "localhost"
VALID: Final = timedelta(days=365)
CLOCK_SKEW: Final = timedelta(days=1)


def add_self_signed(context: ssl.SSLContext) -> None:
    """Give a server's context a new key and certificate.

    ConfigError without `cryptography`. OpenSSL reads them from a file without a name.
    """
    descriptor = os.memfd_create("self-signed", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(_make_pem())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _make_pem() -> bytes:
    """Return a private key of the curve P-256 and its certificate, PEM."""
    try:
        # imported on use: it takes 40 ms, and only tests have it
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise BadValue(
            "tls.test.mode.enable",
            "true",
            "to make a certificate needs the package cryptography: pip install "
            "'rmq[test-tls]', or set tls.server.certPath",
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + certificate.public_bytes(serialization.Encoding.PEM)
