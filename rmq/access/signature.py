"""Signatures: HMAC-SHA1 in Base64 over the content of a request.

The content: the values of all extension fields in the order of their names (Java's
order, by UTF-16 units), without `Signature`, then the body. Clients up to 4.9.3 leave
out `_UNIQUE_KEY_QUERY`. The values must be exactly the received values.
"""

import base64
import hmac

from rmq.protocol.command import Command

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"

_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_LAST_WITHOUT_UNIQUE_KEY = 399
"""Ordinal of 4.9.3 in Java's list of versions."""


def signed_content(request: Command) -> bytes:
    """Return the bytes that the client signed."""
    left_out = {SIGNATURE}
    if request.version <= _LAST_WITHOUT_UNIQUE_KEY:
        left_out.add(_UNIQUE_KEY_QUERY)
    fields = request.ext_fields
    is_ascii = "".join(fields).isascii()
    names = sorted(fields.keys() - left_out, key=None if is_ascii else _java_order)
    text = "".join([fields[name] for name in names])
    return text.encode(errors="replace") + request.body


def signature_of(content: bytes, secret_key: str) -> str:
    """Sign a request's content."""
    mac = hmac.digest(secret_key.encode(), content, "sha1")
    return base64.b64encode(mac).decode()


def is_signed(request: Command, secret_key: str) -> bool:
    """Whether the request has the right signature for this key."""
    given = request.ext_fields.get(SIGNATURE)
    if given is None:
        return False
    right = signature_of(signed_content(request), secret_key)
    return hmac.compare_digest(right.encode(), given.encode(errors="replace"))


def sign(request: Command, access_key: str, secret_key: str) -> None:
    """Add the name of a user and the signature to a request of this process."""
    request.ext_fields[ACCESS_KEY] = access_key
    content = signed_content(request)
    request.ext_fields[SIGNATURE] = signature_of(content, secret_key)


def _java_order(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
