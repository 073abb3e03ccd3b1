"""How long to wait before a request is repeated, and after what it never is."""

from typing import Final

from rmq.core.errors import CertificateWanted, NotTrusted, TlsWanted

FIRST_PAUSE_S: Final = 0.05
LAST_PAUSE_S: Final = 5.0
DOUBLINGS: Final = 10

FINAL: Final = (NotTrusted, TlsWanted, CertificateWanted)
"""Errors of connections that stay what they are."""


def pause_s(attempt: int) -> float:
    """The pause before an attempt; the first repetition is number 1."""
    return float(min(FIRST_PAUSE_S * 2 ** min(attempt - 1, DOUBLINGS), LAST_PAUSE_S))
