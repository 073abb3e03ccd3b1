"""The certificate that a server makes for itself, as OpenSSL reads it."""

import ssl
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from rmq.remoting.self_signed import BASE, ORDER, add_self_signed, make_pem


def test_the_certificate_is_signed_by_its_own_key():
    pem = make_pem()
    certificate = x509.load_pem_x509_certificate(pem)
    key = load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.public_key() == certificate.public_key()
    certificate.verify_directly_issued_by(certificate)
    names = certificate.extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    ).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    now = datetime.now(UTC)
    assert certificate.not_valid_before_utc < now < certificate.not_valid_after_utc


def test_each_one_is_new():
    assert len({make_pem() for _ in range(3)}) == 3


def test_openssl_loads_it():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    add_self_signed(context)
    assert context.cert_store_stats()["x509"] == 0, "it trusts no client"


def test_the_curve_is_p256():
    """The library knows the curve: the public key of 1 is its base point."""
    numbers = ec.derive_private_key(1, ec.SECP256R1()).public_key().public_numbers()
    assert (numbers.x, numbers.y) == BASE
    last = ec.derive_private_key(ORDER - 1, ec.SECP256R1()).public_key()
    assert last.public_numbers().x == BASE[0]
