"""Delayed delivery: a message waits in a system topic and is stored again when due.

A delayed message is stored in SCHEDULE_TOPIC_XXXX, queue level - 1, with its topic and
queue in REAL_TOPIC and REAL_QID. All messages of a level have the same delay: the first
one of each queue is due next. Delivery first stores a new record with the same
properties and then moves the offset. After a crash the broker may deliver a message
twice, but loses none.

One task sleeps until the earliest message is due. Without delayed messages it sleeps
until an arrival; ordinary messages cost it one test per poll.
"""

import logging
import re
from collections.abc import Mapping
from typing import Final

import trio

from rmq.plugin import (
    BrokerContext,
    Foreign,
    GetStatus,
    PhysicalOffset,
    PutStatus,
    QueueOffset,
    RecordDamaged,
    RequestRejected,
)
from rmq.plugin.native import DelayedSends, QueueTail
from rmq.protocol import properties as names
from rmq.protocol.codes import ResponseCode
from rmq.protocol.message import Message
from rmq.protocol.records import StoredMessage, decode_or_error
from rmq.protocol.topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, is_topic
from rmq_plugins.schedule.levels import DelayOffsets

logger = logging.getLogger(__name__)

BATCH: Final = 32
"""Number of messages that one turn reads and delivers, in 0.1 ms."""

MAX_KEPT_BYTES: Final = 256 << 10
"""Maximum bytes of a level that stay in memory until they are due: the size of one
read.
"""

RETRY_MS: Final = 10_000
"""Pause of a level after a message could not be stored."""

DAMAGED_MS: Final = 1_000
"""Pause of a level whose next message waits for its bytes."""

_QUEUE_ID: Final = re.compile("[0-9]{1,9}")
_LEVEL: Final = re.compile("[+-]?[0-9]{1,10}")
_TIMERS: Final = frozenset(
    {names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS}
)


class Deliveries:
    """Known in Java as `ScheduleMessageService`."""

    def __init__(self, broker: BrokerContext) -> None:
        config = broker.config
        self._messages = broker.messages
        self._store = broker.store
        self._queues = broker.queues
        self._copies = broker.copies
        self._append = broker.put.append
        self._arrivals = broker.arrivals
        self._topics = broker.topics
        self._failures = broker.monitor.failures
        self._clock = broker.clock
        self._steps = broker.clock_steps
        self._steps.callbacks.append(self._clock_set)
        self._next_turn = broker.next_turn
        self._delays_ms = broker.store_config.delay_table()
        self.offsets = DelayOffsets(
            broker.config_folder,
            broker.clock,
            config.delay_offset_update_version_step,
            broker.durability.flush,
        )
        self._targets: dict[bytes, QueueTail] = {}
        self.due_ms: dict[int, int] = {}
        """The due time of the next message of each level with messages, on the steady
        clock.
        """

        self._expected: set[int] = set()
        self.native = DelayedSends(self._delays_ms, self._expected)
        """The form of `divert_delayed` in compiled sends."""

        self._kept: dict[int, tuple[int, bytes, int]] = {}
        """By level: records that are not due yet, from an offset on, and its position.

        If the messages of a level are due one by one, each message is read once."""

        self._woken = trio.Event()

    # -- diversion

    def divert_delayed(self, message: Message) -> None:
        """Address a delayed message to the queue of its level, unless it is a half
        message.
        """
        text = message.properties.get(names.DELAY)
        level = _delay_level(text)
        if level is None:
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the property DELAY is {Foreign(text)}, which is no level",
            )
        if level <= 0 or not self._delays_ms or message.is_half:
            return
        level = min(level, len(self._delays_ms))
        if not _TIMERS.isdisjoint(message.properties):
            for timer in _TIMERS:
                message.remove_property(timer)
        message.set_property(names.DELAY, str(level))
        message.set_property(names.REAL_TOPIC, message.topic)
        message.set_property(names.REAL_QID, str(message.queue_id))
        message.topic, message.queue_id = SCHEDULE_TOPIC, level - 1
        assert message.queue_id >= 0, f"level {level} has no queue"
        self._expected.add(level)
        if not self.native.has_level(level):
            self._register_level(level)

    def _register_level(self, level: int) -> None:
        """Let compiled sends write the queue of a level, after its first message."""
        queue = self._queues.get(SCHEDULE_TOPIC, level - 1)
        if queue is not None and not queue.is_batch:
            self.native.register(level, queue)

    def on_arrivals(self, touched: Mapping[tuple[str, int], int]) -> None:
        """Set the due times of levels that were empty before."""
        if not self._expected:
            return
        arrived = {n for n in self._expected if (SCHEDULE_TOPIC, n - 1) in touched}
        self._expected.difference_update(arrived)
        for level in arrived - self.due_ms.keys():
            self.due_ms[level] = 0
            self._woken.set()

    def _clock_set(self, _step_ms: int) -> None:
        """Check all levels again, because the clock was set."""
        for level in self.due_ms:
            self.due_ms[level] = 0
        self._woken.set()

    # -- delivery

    async def run(self) -> None:
        """Deliver until cancelled."""
        self.find_pending()
        while True:
            now_ms = self._clock.steady_ms()
            due = (level for level, at_ms in self.due_ms.items() if at_ms <= now_ms)
            level = next(due, None)
            if level is None:
                await self._sleep(now_ms)
            else:
                self._deliver_in_turn(level)
                await self._next_turn()

    def _deliver_in_turn(self, level: int) -> None:
        """Deliver one batch of a level; after it the other levels have their turn.

        So a send waits for at most one batch. In a trial, longer turns with pauses made
        sends wait longer.
        """
        self.deliver(level)
        if level in self.due_ms:
            self.due_ms[level] = self.due_ms.pop(level)

    def find_pending(self) -> None:
        """Set the due time of every level, at the start.

        Messages that still wait for slaves set the due time when they become visible.
        """
        reads = self._messages
        for level in range(1, len(self._delays_ms) + 1):
            where = SCHEDULE_TOPIC, level - 1
            queue = self._queues.get(*where)
            visible = reads.max_offset(*where)
            low, high = reads.min_offset(*where), queue.next_offset if queue else 0
            offset = self.offsets.get(level)
            if not low <= offset <= high:
                self.offsets.set(level, max(low, min(offset, high)))
            if offset < visible:
                self.due_ms[level] = 0
            if visible < high:
                self._expected.add(level)

    async def _sleep(self, now_ms: int) -> None:
        """Sleep until a message is due or arrives, or the clock is set."""
        self._woken = trio.Event()
        if not self.due_ms:
            await self._woken.wait()
            return
        pause_ms = min(self.due_ms.values()) - now_ms
        with trio.move_on_after(max(pause_ms, 1) / 1_000):
            await self._woken.wait()

    def deliver(self, level: int) -> int:
        """Deliver due messages of one level, at most a batch; return their number."""
        offset = first = self.offsets.get(level)
        records, position = self.read(level, offset)
        if not records:
            return 0
        self._steps.notice_step()
        now_ms, delay_ms = self._clock.now_ms(), self._delays_ms[level - 1]
        self.due_ms[level] = steady_ms = self._clock.steady_ms()
        while position < len(records):
            copied = self._copies.put_again(
                self._targets, records, position, now_ms - delay_ms
            )
            if copied is not None:
                position, offset = copied
                continue
            record, error = decode_or_error(records, position)
            left_ms = self.left_ms(record, level, now_ms)
            if left_ms:
                self.due_ms[level] = steady_ms + left_ms
                break
            if not self._deliver_one(record, error):
                self.due_ms[level] = steady_ms + RETRY_MS
                break
            offset = record.queue_offset + 1
            position += record.size
        assert offset >= first, f"level {level} went back from {first} to {offset}"
        if position < len(records) <= MAX_KEPT_BYTES:
            self._kept[level] = offset, records, position
        if offset > first:
            self.offsets.set(level, offset)
            self._arrivals.flush()
        return offset - first

    def left_ms(self, record: StoredMessage, level: int, now_ms: int) -> int:
        """Return the time until a message of a level is due; 0 if it is due.

        If more than the level's delay is left, the clock was set back: the message is
        due, too.
        """
        delay_ms = self._delays_ms[level - 1]
        stored_ms = self._steps.store_time(
            record.store_timestamp, record.physical_offset
        )
        left_ms = stored_ms + delay_ms - now_ms
        return left_ms if 0 < left_ms <= delay_ms else 0

    def read(self, level: int, offset: int) -> tuple[bytes, int]:
        """Return records, and the position in them of the record at an offset.

        Without a record it skips missing entries, and waits for a damaged record.
        """
        kept_offset, records, position = self._kept.pop(level, (-1, b"", 0))
        if kept_offset == offset:
            return records, position
        try:
            found = self._messages.get(
                SCHEDULE_TOPIC, level - 1, QueueOffset(offset), BATCH, is_own=True
            )
        except RecordDamaged:
            self.due_ms[level] = self._clock.steady_ms() + DAMAGED_MS
            return b"", 0
        if found.status is GetStatus.FOUND:
            return found.body, 0
        self._skip_missing(level, offset, found.next_begin_offset, found.max_offset)
        return b"", 0

    def _deliver_one(self, record: StoredMessage, error: Exception | None) -> bool:
        """Store a message in its own topic, or skip it; False if the store is busy."""
        with self._failures.skip_on_error("schedule", record):
            if error is not None:
                raise error
            return self._store_again(record)
        return True

    def _skip_missing(self, level: int, offset: int, following: int, high: int) -> None:
        """Skip missing entries; remove the due time of a level without messages."""
        if following != offset:
            self.offsets.set(level, following)
        if following >= high:
            self.due_ms.pop(level, None)

    def _store_again(self, record: StoredMessage) -> bool:
        """Store a message in its own topic; False if the store is busy."""
        message = self.message_of(record)
        if message is None:
            return True
        topic, queue_id = message.topic, message.queue_id
        self._topics.restore(topic, queue_id)
        if self._append(message).status is not PutStatus.PUT_OK:
            return False
        if topic != SCHEDULE_TOPIC:
            self._copies.learn_target(self._targets, topic, queue_id)
        return True

    def message_of(self, record: StoredMessage) -> Message | None:
        """Return the message to store in its own topic.

        None for a message without a valid topic, which is logged and skipped.
        """
        message = record.to_message()
        properties = message.properties
        topic = properties.get(names.REAL_TOPIC, "")
        queue_id = properties.get(names.REAL_QID, "")
        if not self._is_address(topic, queue_id):
            logger.error(
                "dropped the delayed message at %d: REAL_TOPIC is %s, REAL_QID %s",
                record.physical_offset,
                Foreign(topic),
                Foreign(queue_id),
            )
            return None
        if self._is_deleted(topic, record.physical_offset):
            logger.warning(
                "dropped the delayed message at %d: its topic %s was deleted",
                record.physical_offset,
                Foreign(topic),
            )
            return None
        message.topic, message.queue_id = topic, int(queue_id)
        message.prepared_transaction_offset = 0
        return message

    def _is_deleted(self, topic: str, offset: int) -> bool:
        """Whether the topic of the record at an offset was deleted since."""
        return self._topics.get(topic) is None and self._store.was_deleted(
            topic, PhysicalOffset(offset)
        )

    def _is_address(self, topic: str, queue_id: str) -> bool:
        """Whether the address is valid; a foreign store may have any value."""
        if topic == TRANS_HALF_TOPIC or not _QUEUE_ID.fullmatch(queue_id):
            return False
        return self._topics.get(topic) is not None or is_topic(topic)


def _delay_level(text: str | None) -> int | None:
    """Return the delay level, 0 without one; None for a text that is no number."""
    if text is None:
        return 0
    return int(text) if _LEVEL.fullmatch(text) else None
