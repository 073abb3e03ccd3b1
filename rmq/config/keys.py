"""Java's keys without effect in rmq, each with the reason.

They are in `java_keys.txt`: a reason in brackets, then its keys as `key=Java's
default`. A reason with a leading `!` is about a feature that clients or operators would
notice. Such a key is reported as a problem, and a line `> …` has the step that replaces
it. With `!!` the feature is a protection: with such a key a broker starts only if
`rmq.allowOpen` is true.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Unused(NamedTuple):
    """A known key without effect."""

    key: str
    default: str
    reason: str
    is_missed: bool
    """Whether a value other than the default needs a feature that is missing."""

    is_protection: bool
    """Whether this feature protects the broker."""

    way_out: str
    """The step that replaces the key; empty if no feature is missing."""

    @property
    def explanation(self) -> str:
        """The reason, and the way out."""
        return f"{self.reason}; {self.way_out}" if self.way_out else self.reason


@cache
def unused_keys() -> dict[str, Unused]:
    """Return every such key."""
    text = Path(__file__).with_name("java_keys.txt").read_text()
    found: dict[str, Unused] = {}
    reason, is_missed, is_protection, way_out = "", False, False, ""
    for line in text.splitlines():
        if line.startswith("["):
            reason = line.strip("[]!")
            is_missed = line.startswith("[!")
            is_protection = line.startswith("[!!")
            way_out = ""
        elif line.startswith("> "):
            way_out = line.removeprefix("> ")
        elif line and not line.startswith("#"):
            key, _, default = line.partition("=")
            assert key not in found, key
            found[key] = Unused(key, default, reason, is_missed, is_protection, way_out)
    return found


def broken_promises(values: Mapping[str, str]) -> list[Unused]:
    """Return the keys by which the settings ask for a protection that is missing."""
    known = unused_keys()
    return [
        known[key]
        for key, value in values.items()
        if key in known
        and known[key].is_protection
        and value.lower() != known[key].default
    ]


def why_unused(key: str) -> str | None:
    """Return the reason why a Java key has no effect; None for other keys."""
    known = unused_keys().get(key)
    return f"this key has no effect in rmq: {known.explanation}" if known else None
