"""Deliveries: enqueues records of the timer's queue in slots, and delivers due slots.

The records of a slot are delivered after its end, in the order of the log. Before this
the plugin reads the recalls of the slot. A record with a time beyond the roll window
waits in an earlier slot. From there it *rolls*: the plugin stores it again in the
timer's queue, because the log deletes old records. Delivery first stores the record in
its own topic and then moves the progress.

One task enqueues and delivers. It sleeps until the earliest slot ends or a record
arrives.
"""

import logging
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
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
    SparseLog,
    StoreError,
)
from rmq.plugin.native import QueueTail, java_hash
from rmq.protocol import properties as names
from rmq.protocol.message import Message
from rmq.protocol.records import StoredMessage, decode_or_error
from rmq.protocol.topics import TIMER_TOPIC, TRANS_HALF_TOPIC, is_topic

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

BATCH: Final = 8
"""Number of records that one turn decodes in Python, in 0.1 ms."""

READ: Final = 256
READS: Final = 4
"""READ: maximum number of records of one read, which usually finds 32. READS: maximum
number of reads in one turn.
"""

COPIES: Final = 64
"""Number of messages that compiled code delivers in one turn, also in 0.1 ms."""

MAX_SLEEP_MS: Final = 1_000
"""Pause between two reads of the wall clock, which may be set, while messages wait."""

RETRY_S: Final = 0.5
"""Pause after the store refused a message."""

NEVER_IN_A_SLOT: Final = (1 << 63) - 1
"""TIMER_ENQUEUE_MS of a message that was due at its arrival, as in Java."""

_PLAIN, _ROLLS, _RECALLS = 1, 2, 4
_NO_UNIT: Final = -1
_NEVER_STORED: Final = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


class _Refused(StoreError):
    """The store is busy."""


class Deliveries:
    """Known in Java as `TimerMessageStore`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._config = broker.store_config
        self._store = broker.store
        self._messages = broker.messages
        self._timer = broker.timer
        self._failures = broker.monitor.failures
        self._append = broker.put.append
        self._copies = broker.copies
        self._targets: dict[bytes, QueueTail] = {}
        self._arrivals = broker.arrivals
        self._topics = broker.topics
        self._clock = broker.clock
        self._next_turn = broker.next_turn
        self._precision_ms = self._timer.precision_ms
        self._woken = trio.Event()
        self._is_stopping = False
        self.enqueued: Counter[str] = Counter()
        self.dequeued: Counter[str] = Counter()
        """Messages that entered slots, and that left them, by topic."""

        self.late_recalls = 0
        self.topic_names: dict[int, str] = {}
        """Names of topics with timed messages, by their hash."""

        self.on_progress: Callable[[], None] = lambda: None

    def on_arrivals(self, touched: Mapping[tuple[str, int], int]) -> None:
        """Wake the task when the timer's queue has a record."""
        if self._has_records():
            self._woken.set()

    def stop(self) -> None:
        """Begin no more slots, because the broker stops and would interrupt one."""
        self._is_stopping = True

    async def run(self) -> None:
        """Enqueue and deliver until cancelled."""
        while True:
            try:
                is_busy = self.enqueue_batch()
                slot = self.due_slot()
                if slot is not None:
                    await self.deliver(slot)
                elif is_busy:
                    await self._next_turn()
                else:
                    await self._sleep()
            except StoreError as error:
                logger.debug("timed messages wait: %s", error)
                await trio.sleep(RETRY_S)

    async def _sleep(self) -> None:
        self._woken = trio.Event()
        if self._has_records():
            return
        first = self._timer.wheel.first_slot()
        if first is None and not self._config.timer_stop_enqueue:
            await self._woken.wait()
            return
        pause_ms = MAX_SLEEP_MS
        if first is not None:
            left_ms = (first + 1) * self._precision_ms - self._clock.now_ms()
            pause_ms = min(pause_ms, left_ms) if left_ms > 0 else MAX_SLEEP_MS
        with trio.move_on_after(pause_ms / 1_000):
            await self._woken.wait()

    # -- enqueueing

    @property
    def lag(self) -> int:
        """Number of records of the queue that are not in slots yet."""
        return self._messages.max_offset(TIMER_TOPIC, 0) - self._timer.queue_offset

    def _has_records(self) -> bool:
        return self.lag > 0 and not self._config.timer_stop_enqueue

    def enqueue_batch(self) -> bool:
        """Enqueue one batch of records; False without records."""
        timer = self._timer
        now, first = (
            self._clock.now_ms() // self._precision_ms,
            timer.wheel.first_slot(),
        )
        if first is None or first >= now:  # no slot waits
            timer.follow_clock(now)
        if not self._has_records():
            return False
        for number in range(READS):
            found = self._messages.get(
                TIMER_TOPIC, 0, timer.queue_offset, READ, is_own=True
            )
            if found.status is not GetStatus.FOUND:
                if found.next_begin_offset > timer.queue_offset:
                    timer.move(queue_offset=found.next_begin_offset)
                    return True
                return number > 0
            if not self._enqueue_records(found.body):
                return True
            if found.next_begin_offset > timer.queue_offset:
                timer.move(queue_offset=found.next_begin_offset)
        return True

    def _enqueue_records(self, records: bytes) -> bool:
        """Enqueue records; return True if compiled code enqueued all, False if the
        caller must call again.
        """
        timer = self._timer
        now = self._clock.now_ms() // self._precision_ms
        end_slot = now + self._config.timer_roll_window
        unmarked = None
        position = one_by_one = 0
        try:
            while position < len(records) and one_by_one < BATCH:
                added = timer.add_plain(records, position, end_slot)
                if added is not None:
                    unmarked = None
                    position, topics = added
                    for topic, count in topics:
                        self._count_enqueued(topic, count)
                    continue
                record, error = decode_or_error(records, position)
                unmarked = _unit_fields(record)
                with self._failures.skip_on_error("timer", record):
                    if error is not None:
                        raise error
                    if self._enqueue_record(record):
                        unmarked = None
                timer.move(queue_offset=QueueOffset(record.queue_offset + 1))
                position += record.size
                one_by_one += 1
        finally:
            if unmarked is not None:
                timer.mark(unmarked)
            self._arrivals.flush()
            self.on_progress()
        return not one_by_one

    def _count_enqueued(self, topic: str, messages: int) -> None:
        """Count messages that entered slots."""
        self.topic_names[java_hash(topic)] = topic
        self.enqueued[topic] += messages

    def _enqueue_record(self, record: StoredMessage) -> bool:
        """Add a unit for a record to its slot, or deliver the record at once; return
        whether it has a unit.
        """
        out_ms = parse_number(record.properties.get(names.TIMER_OUT_MS))
        if out_ms is None or names.REAL_TOPIC not in record.properties:
            logger.error(
                "the record at %d of %s has no time or topic and is skipped",
                record.physical_offset,
                TIMER_TOPIC,
            )
            return False
        timer, precision_ms = self._timer, self._precision_ms
        slot = out_ms // precision_ms
        unit = _unit_fields(record)
        if timer.is_taken(PhysicalOffset(unit[0]), record.queue_offset, slot, unit[2]):
            return False
        recalls = names.TIMER_DEL_UNIQKEY in record.properties
        if slot < timer.read_slot:
            if recalls:
                self.late_recalls += 1
            elif not self._store_again(record, NEVER_IN_A_SLOT, rolls=False):
                raise _Refused(f"{record.physical_offset} is due")
            return False
        bits = _PLAIN | (_RECALLS if recalls else 0)
        chosen = self._choose_slot(slot, self._clock.now_ms() // precision_ms)
        timer.add(bits if chosen == slot else bits | _ROLLS, unit, chosen)
        self._count_enqueued(record.properties[names.REAL_TOPIC], 1)
        return True

    def _choose_slot(self, slot: int, now: int) -> int:
        """Return the slot of the message, or an earlier one from which it rolls."""
        window = self._config.timer_roll_window
        excess = slot - now - window
        if excess < 0:
            return slot
        return now + (window // 2 if excess < window // 3 else window)

    # -- delivery

    def due_slot(self) -> int | None:
        """Return the earliest slot that has ended; None without one."""
        first = self._timer.wheel.first_slot()
        if first is None or self._is_stopping or self._config.timer_stop_dequeue:
            return None
        end_ms = (first + 1) * self._precision_ms
        return first if end_ms <= self._clock.now_ms() else None

    async def deliver(self, slot: int) -> None:
        """Deliver all messages of a slot; enqueue new records between the turns."""
        timer = self._timer
        timer.move(slot=slot)
        after = _NO_UNIT
        while timer.wheel.last_of(slot) > after:
            last = timer.wheel.last_of(slot)
            positions = await self._read_positions(slot, after)
            recalled: set[str] = set()
            if timer.wheel.has_recalls(slot):
                recalled = await self._find_recalled(positions)
            if after != _NO_UNIT:
                self.late_recalls += len(recalled)
            positions.reverse()
            size = BATCH if recalled else COPIES
            for start in range(0, len(positions), size):
                await self._deliver_part(
                    slot, positions[start : start + size], recalled
                )
                self._arrivals.flush()
                await self._next_turn()
                with suppress(StoreError):  # the next round of `run` tries again
                    self.enqueue_batch()
            after = last
        timer.wheel.remove_first()
        timer.move(slot=slot + 1)
        self.on_progress()

    async def _read_positions(self, slot: int, after: int) -> "array[int]":
        """Return the positions of the slot's units, newest first."""
        positions = array("q")
        for part in self._timer.read_chain(slot, after):
            positions.extend(part)
            await self._next_turn()
        return positions

    async def _find_recalled(self, positions: "array[int]") -> set[str]:
        """Return the keys of the messages that the slot's units recall."""
        keys = set()
        for number, position in enumerate(positions):
            if number % BATCH == 0:
                await self._next_turn()
            unit = self._timer.log.unit_at(position)
            if unit is None or unit.bits & _ROLLS or not unit.bits & _RECALLS:
                continue
            record = await self._read_recall(unit.offset, unit.size)
            if record is not None:
                keys.add(record.properties.get(names.TIMER_DEL_UNIQKEY, ""))
        return keys

    async def _read_recall(self, offset: int, size: int) -> StoredMessage | None:
        """Return the record of a recall, after it has its bytes again."""
        while True:
            try:
                return self._find_record(offset, size)
            except RecordDamaged:
                await trio.sleep(RETRY_S)

    async def _deliver_part(
        self, slot: int, part: "array[int]", recalled: set[str]
    ) -> None:
        """Deliver the messages of some units, in their order."""
        wanted = array("q") if recalled else part
        records, added, topics = self._timer.due_records(wanted)
        times = slot * self._precision_ms, (slot + 1) * self._precision_ms
        done = copied = 0
        while done < len(part):
            with self._failures.skip_on_error("timer", f"the slot at {times[0]} ms"):
                copied = self._copies.put_timed(
                    self._targets, records, added, done, times
                )
            if copied:
                self._count_dequeued(topics[done : done + copied])
                done += copied
            if done < len(part):
                await self._deliver_until_stored(slot, part[done], recalled)
                done += 1
            copied = 0

    def _count_dequeued(self, topic_hashes: Iterable[int]) -> None:
        """Count messages that left the slot."""
        for topic_hash, count in Counter(topic_hashes).items():
            self._timer.count_delivered(topic_hash, count)
            self.dequeued[self.topic_names.get(topic_hash, "")] += count

    async def _deliver_until_stored(
        self, slot: int, position: int, recalled: set[str]
    ) -> None:
        """Deliver the message of one unit; wait until the store can do it."""
        while not self._deliver_one(slot, position, recalled):  # noqa: ASYNC110
            await trio.sleep(RETRY_S)

    def _deliver_one(self, slot: int, position: int, recalled: set[str]) -> bool:
        """Deliver the message of one unit, or skip it.

        False if the store is busy, or the message waits for its bytes.
        """
        try:
            with self._failures.skip_on_error(
                "timer", f"position {position} of the timer log"
            ):
                return self._deliver_unit(slot, position, recalled)
        except RecordDamaged:
            return False
        return True

    def _deliver_unit(self, slot: int, position: int, recalled: set[str]) -> bool:
        """Deliver the message of one unit; False if the store is busy."""
        unit = self._timer.log.unit_at(position)
        rolls = unit is not None and bool(unit.bits & _ROLLS)
        if unit is None or (unit.bits & _RECALLS and not rolls):
            return True
        record = self._find_record(unit.offset, unit.size)
        if record is None or not self._is_of_slot(record, slot, rolls=rolls):
            logger.error(
                "the unit at %d of the timer log has no record at %d and is skipped",
                position,
                unit.offset,
            )
        elif not rolls and recalled and not recalled.isdisjoint(recall_keys(record)):
            return True
        elif not self._store_again(record, unit.written_ms, rolls=rolls):
            return False
        self._count_dequeued([unit.topic_hash])
        return True

    def _find_record(self, offset: int, size: int) -> StoredMessage | None:
        """Return the record of a unit; None if the log does not have it any more."""
        record = self._messages.verified_message_at(PhysicalOffset(offset))
        if record is None or record.topic != TIMER_TOPIC or record.size != size:
            return None
        return record

    def _is_of_slot(self, record: StoredMessage, slot: int, *, rolls: bool) -> bool:
        out_ms = parse_number(record.properties.get(names.TIMER_OUT_MS))
        return out_ms is not None and (rolls or out_ms // self._precision_ms == slot)

    # -- the stored form

    def _store_again(
        self, record: StoredMessage, written_ms: int, *, rolls: bool
    ) -> bool:
        """Store a record in its own topic, or again in the timer's queue if it rolls.

        False if the store is busy. A record that can never be stored, or has no valid
        address, is logged and dropped.
        """
        message = record.to_message() if rolls else self.message_of(record)
        if message is None:
            return True
        if not rolls:
            self._topics.restore(message.topic, message.queue_id)
        message.prepared_transaction_offset = 0
        as_stored = message.stored_properties()
        message.set_property(names.TIMER_ENQUEUE_MS, str(written_ms))
        if rolls:
            rolled = parse_number(message.properties.get(names.TIMER_ROLL_TIMES)) or 0
            times = rolled + 1
            message.set_property(names.TIMER_ROLL_TIMES, str(times))
        message.set_property(names.TIMER_DEQUEUE_MS, str(self._clock.now_ms()))
        status = self._append(message).status
        if status in _NEVER_STORED:  # the message may fit without the new properties
            message.properties_text = as_stored
            status = self._append(message).status
        if status in _NEVER_STORED:
            logger.error(
                "dropped the timed message at %d: maxMessageSize or the log's files "
                "are smaller now",
                record.physical_offset,
            )
            return True
        if status is PutStatus.PUT_OK and not rolls:
            self._copies.learn_target(self._targets, message.topic, message.queue_id)
        return status is PutStatus.PUT_OK

    def message_of(self, record: StoredMessage) -> Message | None:
        """Return a timed message with its own topic and queue.

        None, with a log line, if topic or queue is invalid, or if the topic was
        deleted.
        """
        message = record.to_message()
        topic = message.properties.get(names.REAL_TOPIC, "")
        queue_id = parse_number(message.properties.get(names.REAL_QID))
        if queue_id is None or not self._is_topic(topic):
            logger.error(
                "dropped the timed message at %d: REAL_TOPIC is %s, REAL_QID %s",
                record.physical_offset,
                Foreign(topic),
                Foreign(message.properties.get(names.REAL_QID)),
            )
            return None
        if self._is_deleted(topic, record.physical_offset):
            logger.warning(
                "dropped the timed message at %d: its topic %s was deleted",
                record.physical_offset,
                Foreign(topic),
            )
            return None
        message.topic, message.queue_id = topic, queue_id
        message.prepared_transaction_offset = 0
        return message

    def _is_deleted(self, topic: str, offset: int) -> bool:
        """Whether the topic of the record at an offset was deleted since."""
        return self._topics.get(topic) is None and self._store.was_deleted(
            topic, PhysicalOffset(offset)
        )

    def _is_topic(self, topic: str) -> bool:
        """Whether the topic is valid; a foreign store may have any value."""
        if topic in (TRANS_HALF_TOPIC, TIMER_TOPIC):
            return False
        return self._topics.get(topic) is not None or is_topic(topic)


def recall_keys(record: StoredMessage) -> tuple[str, str]:
    """Return the two keys by which a recall may name a message."""
    key = record.properties.get(names.UNIQ_KEY, "")
    return key, f"{record.properties.get(names.REAL_TOPIC, '')}+{key}"


def _unit_fields(record: StoredMessage) -> tuple[int, int, int]:
    """Return offset, size and topic hash of a record, the fields of its unit."""
    topic = record.properties.get(names.REAL_TOPIC, "")
    return record.physical_offset, record.size, java_hash(topic)


def parse_number(text: str | None) -> int | None:
    """Return the number in a property; None without one of at most 18 digits."""
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > 18:
        return None
    return int(text)
