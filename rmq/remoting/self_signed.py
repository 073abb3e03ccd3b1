"""A self-signed certificate with its key, in memory: P-256, ECDSA with SHA-256.

Every peer could make such a certificate: it allows encryption, and proves nothing about
the server. Python's `ssl` cannot make keys, so the arithmetic of the curve is here. It
needs 25 ms, once, and its running time depends on the key. This reveals nothing,
because the key is new, and signs only this certificate.

    point       x and y modulo PRIME; None is the point at infinity
    DER         tag u8 | length, 1 to 3 bytes | content
"""

import base64
import hashlib
import os
import secrets
import ssl
from datetime import UTC, datetime, timedelta
from typing import Final

NAME: Final = "localhost"
VALID: Final = timedelta(days=365)
CLOCK_SKEW: Final = timedelta(days=1)

PRIME: Final = 2**256 - 2**224 + 2**192 + 2**96 - 1
ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
BASE: Final = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
SIZE: Final = 32
"""Bytes of a coordinate, and of a private key."""

INTEGER, BITS, OCTETS, OBJECT_ID, UTF8, TIME = 0x02, 0x03, 0x04, 0x06, 0x0C, 0x17
SEQUENCE, SET = 0x30, 0x31
CONTEXT, CONSTRUCTED, DNS_NAME = 0x80, 0x20, 0x82

EC_KEY: Final = bytes.fromhex("2a8648ce3d0201")
P256: Final = bytes.fromhex("2a8648ce3d030107")
ECDSA_SHA256: Final = bytes.fromhex("2a8648ce3d040302")
COMMON_NAME: Final = bytes.fromhex("550403")
ALTERNATIVE_NAME: Final = bytes.fromhex("551d11")

Point = tuple[int, int]


def add_self_signed(context: ssl.SSLContext) -> None:
    """Give a server's context a new key and certificate.

    OpenSSL reads them from a file without a name.
    """
    descriptor = os.memfd_create("self-signed", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(make_pem())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def make_pem() -> bytes:
    """Return a new private key and its certificate, PEM."""
    key = _random_scalar()
    public = _encode_point(_multiply_point(key, BASE))
    algorithm = _encode_der(SEQUENCE, _encode_der(OBJECT_ID, ECDSA_SHA256))
    body = _certificate_body(public, algorithm)
    certificate = _encode_der(
        SEQUENCE, body, algorithm, _encode_bits(_sign_message(key, body))
    )
    private = _encode_der(
        SEQUENCE,
        _encode_integer(1),
        _encode_der(OCTETS, key.to_bytes(SIZE)),
        _encode_der(CONTEXT | CONSTRUCTED | 0, _encode_der(OBJECT_ID, P256)),
        _encode_der(CONTEXT | CONSTRUCTED | 1, _encode_bits(public)),
    )
    return _encode_pem("EC PRIVATE KEY", private) + _encode_pem(
        "CERTIFICATE", certificate
    )


def _certificate_body(public: bytes, algorithm: bytes) -> bytes:
    """Return the part of a certificate that is signed."""
    name = _encode_der(
        SEQUENCE,
        _encode_der(
            SET,
            _encode_der(
                SEQUENCE,
                _encode_der(OBJECT_ID, COMMON_NAME),
                _encode_der(UTF8, NAME.encode()),
            ),
        ),
    )
    now = datetime.now(UTC)
    key_algorithm = _encode_der(
        SEQUENCE, _encode_der(OBJECT_ID, EC_KEY), _encode_der(OBJECT_ID, P256)
    )
    names = _encode_der(SEQUENCE, _encode_der(DNS_NAME, NAME.encode()))
    extension = _encode_der(
        SEQUENCE, _encode_der(OBJECT_ID, ALTERNATIVE_NAME), _encode_der(OCTETS, names)
    )
    return _encode_der(
        SEQUENCE,
        _encode_der(CONTEXT | CONSTRUCTED | 0, _encode_integer(2)),  # version 3
        _encode_integer(secrets.randbits(127) + 1),
        algorithm,
        name,
        _encode_der(
            SEQUENCE, _encode_time(now - CLOCK_SKEW), _encode_time(now + VALID)
        ),
        name,
        _encode_der(SEQUENCE, key_algorithm, _encode_bits(public)),
        _encode_der(CONTEXT | CONSTRUCTED | 3, _encode_der(SEQUENCE, extension)),
    )


def _sign_message(key: int, message: bytes) -> bytes:
    """Return an ECDSA signature, as DER."""
    digest = int.from_bytes(hashlib.sha256(message).digest())
    r = s = 0
    while not r or not s:  # with a probability of 2 to the -255
        nonce = _random_scalar()
        r = _multiply_point(nonce, BASE)[0] % ORDER
        s = pow(nonce, -1, ORDER) * (digest + r * key) % ORDER
    return _encode_der(SEQUENCE, _encode_integer(r), _encode_integer(s))


def _random_scalar() -> int:
    return secrets.randbelow(ORDER - 1) + 1


def _multiply_point(scalar: int, point: Point) -> Point:
    """Return the multiple of a point; `scalar` is in [1, ORDER)."""
    product: Point | None = None
    for bit in range(scalar.bit_length() - 1, -1, -1):
        product = _add_points(product, product)
        if scalar >> bit & 1:
            product = _add_points(product, point)
    assert product is not None
    return product


def _add_points(left: Point | None, right: Point | None) -> Point | None:
    if left is None or right is None:
        return left or right
    (x1, y1), (x2, y2) = left, right
    if x1 == x2 and (y1 + y2) % PRIME == 0:
        return None
    if left == right:
        slope = 3 * (x1 * x1 - 1) * pow(2 * y1, -1, PRIME) % PRIME
    else:
        slope = (y2 - y1) * pow(x2 - x1, -1, PRIME) % PRIME
    x3 = (slope * slope - x1 - x2) % PRIME
    return x3, (slope * (x1 - x3) - y1) % PRIME


def _encode_point(point: Point) -> bytes:
    """Return a point without compression, which 0x04 begins."""
    return b"\x04" + point[0].to_bytes(SIZE) + point[1].to_bytes(SIZE)


def _encode_der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 128:
        return bytes((tag, size)) + content
    count = (size.bit_length() + 7) // 8
    return bytes((tag, 0x80 | count)) + size.to_bytes(count) + content


def _encode_integer(number: int) -> bytes:
    """Return a number that is not negative; its first bit is 0."""
    return _encode_der(INTEGER, number.to_bytes(number.bit_length() // 8 + 1))


def _encode_bits(content: bytes) -> bytes:
    """Return whole bytes as a bit string, whose first byte counts unused bits."""
    return _encode_der(BITS, b"\0", content)


def _encode_time(moment: datetime) -> bytes:
    """Return a time before 2050."""
    return _encode_der(TIME, moment.strftime("%y%m%d%H%M%SZ").encode())


def _encode_pem(label: str, content: bytes) -> bytes:
    text = base64.encodebytes(content)
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (
        label.encode(),
        text,
        label.encode(),
    )
