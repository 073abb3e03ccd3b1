"""Headers: the Host headers that the console accepts, and the headers of all answers.

The console accepts addresses and known names only, against DNS rebinding.  A foreign
name that resolves to 127.0.0.1 would let any page in a browser read this console.
"""

import ipaddress
from collections.abc import Collection
from typing import Final

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
ALWAYS: Final = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
"""Headers of every answer, also of errors and files."""


def is_known_host(text: str, names: Collection[str]) -> bool:
    """Return whether a Host header names this console: an address, or a known name."""
    host, colon, port = text.strip().lower().rpartition(":")
    if not colon or not port.isdecimal() or (":" in host and not host.startswith("[")):
        host = text.strip().lower()
    if host == "localhost" or host.endswith(".localhost") or host in names:
        return True
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def is_own_page(origin: str, host: str, site: str) -> bool:
    """Return whether a POST comes from this console's own page."""
    scheme, separator, place = origin.partition("://")
    is_same = bool(separator) and scheme in ("http", "https") and place == host
    return is_same and site in ("", "same-origin")
