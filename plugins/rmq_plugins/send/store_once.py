"""StoreOnce: finds the message that an earlier attempt of a retried send has stored.

A client sends a message again with the same UNIQ_KEY if the answer is late. In a topic
with the attribute `rmq.once.window.ms` such a send gets the first one's answer, and is
not stored again. `rmq.onceWindowMs` does this for all topics. Java has nothing like it.

`OnceTable` finds messages by their keys. Then the record is read, and must have the
same topic and key. At a start and after a change of roles the table is built from the
log.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

from rmq.plugin import (
    BatchPutResult,
    BrokerContext,
    PhysicalOffset,
    PutResult,
    PutStatus,
)
from rmq.plugin.native import OnceTable
from rmq.protocol.bodies.topics import ONCE_WINDOW, TopicConfig
from rmq.protocol.properties import REAL_QID, REAL_TOPIC, UNIQ_KEY
from rmq.protocol.records import StoredMessage
from rmq.protocol.topics import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    is_internal_topic,
    is_lmq,
)

logger = logging.getLogger(__name__)

DIVERTED_TO: Final = (TRANS_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)
"""Topics in which messages wait; the property REAL_TOPIC has the message's own
topic.
"""

ON_PURPOSE_MS: Final = 1_000
"""Age of the first message after which a send with the same key is no retry: clients
retry within seconds of a timeout.
"""

SHOWN_MS: Final = 3_600_000
"""Time for which a group is reported after its last repeat."""

MAX_GROUPS: Final = 1_000
"""Maximum number of producer groups that are counted; the names come from clients."""


class StoreOnce:
    """The keys of topics that store each key once."""

    def __init__(self, broker: BrokerContext) -> None:
        self._config = broker.config
        self._clock = broker.clock
        self._messages = broker.messages
        self._topics = broker.topics
        self._windows: dict[str, int] = {}
        """Windows in ms of the topics with the attribute."""

        self.table: OnceTable | None = None
        """The table of keys; None until a topic has a window."""

        self._counts: dict[str, int] = {}
        self._repeats: dict[str, tuple[int, int, str]] = {}
        """By producer group: the number of repeats on purpose, and the time and the
        topic of the last one.
        """

        for name, topic in broker.topics.all().items():
            self.topic_changed(name, topic)
        broker.topics.on_change.append(self.topic_changed)
        if broker.role.is_master:
            self._load()

    def topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        """Apply the attribute of a new, changed or deleted topic."""
        if topic is None:
            self._counts.pop(name, None)
        text = None if topic is None else topic.attributes.get(ONCE_WINDOW)
        if text is None or not text.isdecimal():
            self._windows.pop(name, None)
            return
        self._windows[name] = int(text)
        if self._windows[name]:
            self._open_table()

    def config_changed(self) -> None:
        """Apply a new value of the window of all topics."""
        if self._config.once_window_ms:
            self._open_table()

    def window_ms(self, topic: str) -> int:
        """Return the time in which a key is stored once; 0: any number of times."""
        window_ms = self._windows.get(topic)
        if window_ms is not None:
            return window_ms
        default_ms = self._config.once_window_ms
        if default_ms and (is_internal_topic(topic) or is_lmq(topic)):
            return 0
        return default_ms

    def find(self, topic: str, key: str, group: str) -> StoredMessage | None:
        """Return the message with this key that was stored within the window; None if
        there is none.

        Also count a found message for the topic and the producer group.
        """
        first = self._find_first(topic, key)
        if first is not None:
            self._count(first, topic, group)
        return first

    def _find_first(self, topic: str, key: str) -> StoredMessage | None:
        window_ms = self.window_ms(topic)
        if not window_ms or self.table is None:
            return None
        since_ms = self._clock.now_ms() - window_ms
        offset = self.table.find(_encode(topic), _encode(key), since_ms)
        if offset < 0:
            return None
        first = self._messages.appended_message_at(PhysicalOffset(offset))
        if first is None or not _is_sent_as(first, topic, key):
            return None
        return first

    def _count(self, first: StoredMessage, topic: str, group: str) -> None:
        """Count a send that is not stored, because the topic already has its
        message.
        """
        self._counts[topic] = self._counts.get(topic, 0) + 1
        now_ms = self._clock.now_ms()
        if now_ms - first.store_timestamp < ON_PURPOSE_MS:
            return
        number, *_ = self._repeats.pop(group, (0, 0, ""))
        if len(self._repeats) == MAX_GROUPS:
            # the group that was silent for the longest time
            del self._repeats[next(iter(self._repeats))]
        self._repeats[group] = number + 1, now_ms, topic

    def find_batch(
        self, topic: str, keys: Sequence[str | None], group: str
    ) -> list[StoredMessage] | None:
        """Return the messages of a batch with these keys; None if it is new.

        The key of the first message finds the batch. The others follow in the log.
        """
        if not keys or keys[0] is None:
            return None
        first = self._find_first(topic, keys[0])
        if first is None:
            return None
        found = [first]
        for key in keys[1:]:
            last = found[-1]
            following = self._messages.appended_message_at(
                PhysicalOffset(last.physical_offset + last.size)
            )
            if following is None or (
                following.topic != topic or following.properties.get(UNIQ_KEY) != key
            ):
                return None
            found.append(following)
        self._count(first, topic, group)
        return found

    def add(self, topic: str, key: str | None, physical_offset: int) -> None:
        """Add a message that was stored now, if its topic has a window."""
        if key and self.table is not None and self.window_ms(topic):
            now_ms = self._clock.now_ms()
            self.table.add(_encode(topic), _encode(key), physical_offset, now_ms)

    def facts(self) -> dict[str, Any]:
        """Return the counts since the start, and the state of the table.

        If the table is full, `windowMs` is shorter than the longest window of a topic.
        """
        table = self.table
        if table is None:
            return {}
        now_ms = self._clock.now_ms()
        window_ms = asked_ms = self._longest_window()
        if table.oldest_ms:
            window_ms = min(asked_ms, now_ms - table.oldest_ms)
        return {
            "storedOnce": dict(self._counts),
            "repeatedKeys": {
                group: (number, topic)
                for group, (number, last_ms, topic) in self._repeats.items()
                if now_ms - last_ms < SHOWN_MS
            },
            "keys": table.count,
            "capacity": table.capacity,
            "askedMs": asked_ms,
            "windowMs": window_ms,
        }

    def _longest_window(self) -> int:
        return max((self._config.once_window_ms, *self._windows.values()))

    def _open_table(self) -> None:
        if self.table is None:
            self.table = OnceTable(self._config.once_table_bytes)

    def _load(self) -> None:
        """Add the keys that the log has, from the longest window."""
        self.config_changed()
        if self.table is None:
            return
        names = [name for name in self._topics.all() if self.window_ms(name)]
        since_ms = self._clock.now_ms() - self._longest_window()
        self._messages.load_keys(self.table, names, DIVERTED_TO, since_ms)
        logger.info(
            "read %d keys of messages of the last %d s, for topics that store each key "
            "once",
            self.table.count,
            self._longest_window() // 1_000,
        )


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _is_sent_as(record: StoredMessage, topic: str, key: str) -> bool:
    """Whether a record is a message that a client sent to the topic with this key."""
    properties = record.properties
    if properties.get(UNIQ_KEY) != key:
        return False
    if record.topic in DIVERTED_TO:
        return properties.get(REAL_TOPIC) == topic
    return record.topic == topic


def result_of(record: StoredMessage) -> PutResult:
    """Return the result of the put that stored a message."""
    return PutResult(
        PutStatus.PUT_OK,
        record.queue_offset,
        record.physical_offset,
        PhysicalOffset(record.physical_offset + record.size),
        record.store_timestamp,
    )


def batch_result_of(records: Sequence[StoredMessage]) -> BatchPutResult:
    """Return the result of the put that stored a batch."""
    last = result_of(records[-1])
    return BatchPutResult(
        PutStatus.PUT_OK,
        records[0].queue_offset,
        tuple(record.physical_offset for record in records),
        last.end_offset,
        last.store_ms,
    )


def queue_of(record: StoredMessage) -> int:
    """Return the queue to which a stored message was sent."""
    if record.topic in DIVERTED_TO:
        return int(record.properties.get(REAL_QID, record.queue_id))
    return record.queue_id
