"""Numbers, rates and time spans as texts for people."""

from collections.abc import Sequence
from typing import Final

SHOWN: Final = 3
"""Maximum number of names in a sentence; the sentence has the number of further names.
"""


def count(number: int) -> str:
    """Return a number of messages as a text for people: 8.7 million messages."""
    if number >= 1_000_000:
        return f"{number / 1e6:.1f} million messages"
    return count_text(number, "message")


def count_text(number: int, noun: str) -> str:
    """Return `1 record`, `2,000 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def members(number: int) -> str:
    """Return `one client`, `4 clients`."""
    return "one client" if number == 1 else f"{number} clients"


def rate_text(per_s: float) -> str:
    """Return a rate: 1,600 a second, 0.4 a second."""
    return f"{per_s:,.0f} a second" if per_s >= 10 else f"{per_s:.1f} a second"


def names_text(names: Sequence[str]) -> str:
    """Return the first names, and the number of further names."""
    shown = ", ".join(names[:SHOWN])
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown


def time_span(length_ms: int) -> str:
    """Return a time span in its largest units: 240 ms, 3.1 s, 16 min, 2 h 12 min."""
    if length_ms < 1_000:
        return f"{length_ms} ms"
    if length_ms < 60_000:
        return f"{length_ms / 1_000:.1f} s"
    hours, minutes = divmod(length_ms // 60_000, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
