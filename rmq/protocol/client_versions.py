"""Names of the versions that clients send as numbers.  Known in Java as `MQVersion`.

From 4.0.0 on ten patches make a minor version, and each patch has two numbers: for its
snapshot and for its release. Smaller numbers follow no rule.
"""

from typing import Final

FIRST_NAMED: Final = 212
"""The number of 4.0.0-SNAPSHOT."""

LAST_NAMED: Final = FIRST_NAMED + 2 * 600 - 1
"""The number of 9.9.9."""


def version_text(number: int) -> str:
    """Return a version as a text for people, 4.9.8; empty if the number has no name."""
    if not FIRST_NAMED <= number <= LAST_NAMED:
        return ""
    patches, is_release = divmod(number - FIRST_NAMED, 2)
    text = f"{4 + patches // 100}.{patches // 10 % 10}.{patches % 10}"
    return text if is_release else f"{text}-SNAPSHOT"
