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
        """Read a handle; None if it is not valid. A time that is no number is -1."""
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


ORDERED_REVIVE_QUEUE: Final = 999
"""The revive queue in the handles of ordered POP, which has no revive records."""


class PopHandle(NamedTuple):
    """The text `extraInfo`, and `POP_CK` of a message: the handle that an ack needs.

    Fields joined by blanks: offset where the checkpoint starts, time of the POP,
    invisible time, revive queue, flag of a retry topic, broker. Clients add queue and
    offset of the message, and sometimes its physical offset.

    >>> PopHandle.decode("0 1795228647162 10000 2 1 broker-a 0 7").revive_queue
    2
    """

    start: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    flag: str
    broker: str

    def encode(self, queue_id: int, offset: int) -> str:
        """Return the text for one message."""
        return " ".join(map(str, (*self, queue_id, offset)))

    @classmethod
    def decode(cls, text: str) -> Self | None:
        """Read a handle; None if it is not valid."""
        fields = text.split(" ", 8) if len(text) <= MAX_HANDLE_SIZE else []
        if len(fields) < 6:
            return None
        numbers = [_read_number(field) for field in fields[:4]]
        if None in numbers:
            return None
        start, pop_ms, invisible_ms, revive_queue = (each or 0 for each in numbers)
        return cls(start, pop_ms, invisible_ms, revive_queue, fields[4], fields[5])


def _read_number(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    return int(text) if is_number else None
