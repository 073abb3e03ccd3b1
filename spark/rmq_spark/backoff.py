"""Pauses before a request is sent again, and the errors that no retry can repair."""

from typing import Final

from rmq.core.errors import CertificateWanted, NotTrusted, TlsWanted

FIRST_PAUSE_S: Final = 0.05
LAST_PAUSE_S: Final = 5.0
DOUBLINGS: Final = 10

FINAL: Final = (NotTrusted, TlsWanted, CertificateWanted)
"""Connection errors that another attempt does not repair."""


def pause_s(attempt: int) -> float:
    """Return the pause before an attempt; the first retry is number 1."""
    return float(min(FIRST_PAUSE_S * 2 ** min(attempt - 1, DOUBLINGS), LAST_PAUSE_S))
