"""Handles: texts by which clients name a message that the broker has given them.

A recall handle names a timed message that is not delivered yet.
"""

import base64
import binascii
from typing import Final, NamedTuple, Self

_VERSION: Final = "v1"
MAX_HANDLE_SIZE: Final = 4_096
_MAX_DIGITS: Final = 18


class RecallHandle(NamedTuple):
    """URL-safe Base64, with padding, of `v1 topic broker time key`.

    >>> handle = RecallHandle("T", "b", 1001, "K")
    >>> handle.encode(), RecallHandle.decode(handle.encode()) == handle
    ('djEgVCBiIDEwMDEgSw==', True)
    """

    topic: str
    broker: str
    due_ms: int
    unique_key: str

    def encode(self) -> str:
        """Return the text that a client gets."""
        text = f"{_VERSION} {self.topic} {self.broker} {self.due_ms} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> Self | None:
        """Read a handle; None if it is none. A time that is no number is -1."""
        if not text or len(text) > MAX_HANDLE_SIZE:
            return None
        try:
            plain = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
            version, topic, broker, due, key, *_ = plain.decode().split(" ")
        except (binascii.Error, UnicodeError, ValueError):
            return None
        if version != _VERSION:
            return None
        is_number = due.isascii() and due.isdecimal() and len(due) <= _MAX_DIGITS
        return cls(topic, broker, int(due) if is_number else -1, key)
