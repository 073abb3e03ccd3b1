"""Offsets for compiled code: the offset after the last message of a queue, and the
offset at a time.

`OffsetHandler` answers the same requests when compiled code declines them.
"""

from typing import Final

from rmq.plugin import Boundary, BrokerContext
from rmq.plugin.native import LookupPath
from rmq.protocol.codes import WIRE_VERSION

_QUEUE_ID_END: Final = 1 << 31


class OffsetLookups:
    """Finds offsets; None for requests that Python has to answer."""

    def __init__(self, broker: BrokerContext) -> None:
        self._messages = broker.messages
        self._mappings = broker.queue_mappings

    def max_offset_path(self) -> LookupPath:
        """Return the compiled handler of request 30."""
        return LookupPath(
            self.find_max_offset,
            texts=("topic",),
            numbers=("queueId",),
            has_offset=True,
            version=WIRE_VERSION,
        )

    def offset_by_time_path(self) -> LookupPath:
        """Return the compiled handler of request 29."""
        return LookupPath(
            self.find_offset_by_time,
            texts=("topic", "boundaryType"),
            numbers=("queueId", "timestamp"),
            absent=("liteTopic",),
            has_offset=True,
            version=WIRE_VERSION,
        )

    def find_max_offset(self, topic: str, queue_id: int) -> int | None:
        """Return the offset after the last visible message."""
        if not self._is_plain(topic, queue_id):
            return None
        return self._messages.max_offset(topic, queue_id)

    def find_offset_by_time(
        self, topic: str, boundary: str, queue_id: int, timestamp_ms: int
    ) -> int | None:
        """Return the offset of a message stored at a time, or next to it."""
        if not self._is_plain(topic, queue_id):
            return None
        end = Boundary.UPPER if boundary.upper() == "UPPER" else Boundary.LOWER
        return self._messages.offset_by_time(topic, queue_id, timestamp_ms, end)

    def _is_plain(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue needs no translation and its id has 32 bits."""
        has_32_bits = -_QUEUE_ID_END <= queue_id < _QUEUE_ID_END
        return has_32_bits and topic not in self._mappings
