"""The tags code of a queue entry.

Usually the code is the hash of the tags. For a delayed message in SCHEDULE_TOPIC_XXXX
the code is the time at which the message is due; the delivery service uses this time.
"""

from rmq.protocol import topics
from rmq.protocol.properties import DELAY, decode_properties

UNKNOWN_LEVEL_DELAY_MS = 1_000
LEVEL_DIGITS = 9
"""Maximum digits of a delay level that is parsed; a longer number exceeds any table."""

SCHEDULE_TOPIC = topics.SCHEDULE_TOPIC.encode()


class TagsCodes:
    """Computes tags codes; it has the delay of each level in milliseconds."""

    def __init__(self, delay_table: tuple[int, ...]) -> None:
        self._delay_table = delay_table

    def due_time(self, topic: bytes, store_ms: int, properties: bytes) -> int | None:
        """Return when a delayed message is due; None if its code is the hash of the
        tags.
        """
        if topic != SCHEDULE_TOPIC:
            return None
        text = decode_properties(properties.decode(errors="replace")).get(DELAY)
        return self.due_time_of_level(store_ms, text)

    def due_time_of_level(self, store_ms: int, text: str | None) -> int | None:
        """Return when a message of the schedule topic with this DELAY is due."""
        if text is None or not text.isdecimal():
            return None
        level = int(text[:LEVEL_DIGITS])
        if level == 0:
            return None
        index = min(level, len(self._delay_table)) - 1
        delay = self._delay_table[index] if index >= 0 else UNKNOWN_LEVEL_DELAY_MS
        return store_ms + delay
