"""TimerStore: the files of messages that wait for their time.

The timer log (`log.py`) is the truth; the wheel is in memory, and the checkpoint has
the end of its durable part.  The plugin `timer` decides which messages are added, and
delivers them.

    queue rmq_sys_wheel_timer/0        timer log and wheel           real topics
    ---- queue_offset: next to take    ---- slots from read_slot on  ---- delivered

Order of durability, each second: the commit log, the timer log, the checkpoint with the
earlier state. So a crash loses no timed message; messages that were delivered since the
last checkpoint may be delivered again. A Java broker continues after the queue record
that the newest unit names. The last record that rmq has taken may have no unit. If it
is the last of several taken together, it gets a *mark*: a unit in a slot of yesterday.
The trio thread owns it; the steps of `flush_steps` block and are for a worker.
"""

# tidy: long — one class: the timer's files, and its progress on masters and slaves

import logging
from array import array
from collections.abc import Callable, Generator, Iterable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from rmq._fastpath.log.timer_units import add_units, due_records
from rmq.core.clock import Clock
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.protocol.topics import TIMER_TOPIC
from rmq.store.allocate import FileAllocator
from rmq.store.commit_log import CommitLog
from rmq.store.config import StoreConfig
from rmq.store.durability import Durability
from rmq.store.queues.consume_queues import ConsumeQueues
from rmq.store.reader import StoreReader
from rmq.store.signals import StoreSignals
from rmq.store.timer.acted import ActedRecords
from rmq.store.timer.checkpoint import ClockReturn, TimerCheckpoint, add_return
from rmq.store.timer.log import (
    MARK_DELAY_MS,
    NO_UNIT,
    PLAIN,
    RECALLS,
    ROLLS,
    UNIT_SIZE,
    WINDOW_SIZE,
    TimerLog,
    TimerUnit,
    write_time,
)
from rmq.store.timer.wheel import TimerWheel

logger = logging.getLogger(__name__)

Step = Callable[[], object]

CRASH_MS: Final = 2_000
"""A Java broker that crashed may have recorded deliveries that its disk never got."""

CHAIN_PART: Final = 2_000
"""Number of units that are found in one step of 0.1 ms."""

DROP_EVERY: Final = 30
"""Number of flushes between two searches for files that are not needed any more."""


class TimerStore:
    """Known in Java as the files of `TimerMessageStore`."""

    def __init__(
        self,
        config: StoreConfig,
        folder: Path,
        clock: Clock,
        log: CommitLog,
        queues: ConsumeQueues,
        reads: StoreReader,
        durability: Durability,
        signals: StoreSignals,
    ) -> None:
        self._wheel_path = folder / "timerwheel"
        self._check_path = folder / "config" / "timercheck"
        self._clock = clock
        self._commit_log = log
        self._queues = queues
        self._reads = reads
        self._durability = durability
        self._signals = signals
        self._positions = durability.positions
        self.precision_ms = config.timer_precision_ms
        self.log = TimerLog(
            folder / "timerlog", config.timer_log_file_size, FileAllocator(WINDOW_SIZE)
        )
        self.wheel = TimerWheel()
        self.is_open = False
        self.checkpoint = TimerCheckpoint()
        self.waiting_counts: dict[int, int] = {}
        """Waiting messages by the hash of their topic."""

        self.read_slot = 0
        """Number of the next slot to deliver."""

        self.queue_offset = QueueOffset(0)
        """The next record of the timer's queue to take."""

        self._taken_before = 0, 0
        """A queue offset and a slot: an earlier run has delivered the records and the
        slots before them.
        """

        self._acted_before = 0
        """A queue offset: acting masters have delivered no later record."""

        self._returns: tuple[ClockReturn, ...] = ()
        self.acted_records = ActedRecords()
        self._known: set[int] = set()
        """Offsets of records after `queue_offset` that have a unit already."""

        self._flushes = 0

    # -- start

    def open(self, *, was_clean: bool) -> list[str]:
        """Build the wheel from the log; return sentences about anomalies.

        Call it after the recovery of the commit log.
        """
        notes: list[str] = []
        found = TimerCheckpoint.load(self._check_path)
        check = found or TimerCheckpoint()
        if not was_clean and check.log_flushed:
            check.read_ms = max(0, check.read_ms - CRASH_MS)
        self.read_slot = check.read_ms // self.precision_ms
        self._taken_before = check.master_queue_offset, self.read_slot
        self._returns = self._within_log(check.returns)
        self.log.load()
        newest = self._build(notes)
        self._find_queue_offset(check, newest)
        if self.log.end_offset:
            self._remember_units(newest)
        self.checkpoint = check
        check.log_flushed = 0
        check.save(self._check_path)
        self._wheel_path.unlink(missing_ok=True)
        self.is_open = True
        return notes

    def _build(self, notes: list[str]) -> tuple[int, TimerUnit] | None:
        """Fill the wheel; return the newest unit."""
        log_end, read_slot = self._commit_log.end_offset, self.read_slot
        precision_ms, wheel, waiting = (
            self.precision_ms,
            self.wheel,
            self.waiting_counts,
        )
        end, newest = self.log.first_offset, None
        for position, unit in self.log.read_units():
            if unit.offset < 0 or unit.offset + unit.size > log_end:
                break
            newest = position, unit
            end = position + UNIT_SIZE
            number = unit.slot_ms // precision_ms
            if (
                number < read_slot
                or unit.is_mark
                or self._is_returned(PhysicalOffset(unit.offset), unit.slot_ms)
                or self.acted_records.has_unit(unit)
            ):
                continue
            recalls = is_recall(unit.bits)
            wheel.add(number, position, recalls=recalls)
            change = -1 if recalls else 1
            waiting[unit.topic_hash] = waiting.get(unit.topic_hash, 0) + change
        if self.log.cut_to(end):
            notes.append(
                f"{self._wheel_path.with_name('timerlog')}: truncated to position "
                f"{end}, where no valid unit follows; rmq rebuilds later units from "
                f"the timer's queue"
            )
        return newest

    def _is_returned(self, offset: PhysicalOffset, slot_ms: int) -> bool:
        """Whether a record was delivered before the clock was set back."""
        return any(each.is_delivered(offset, slot_ms) for each in self._returns)

    def _find_queue_offset(
        self, check: TimerCheckpoint, newest: tuple[int, TimerUnit] | None
    ) -> None:
        """Find the first record of the queue that may have no unit."""
        low = self._reads.min_offset(TIMER_TOPIC, 0)
        high = self._reads.max_offset(TIMER_TOPIC, 0)
        offset: int = low
        if newest is not None:
            offset = check.queue_offset
            record = self._reads.message_at(PhysicalOffset(newest[1].offset))
            if record is not None and record.topic == TIMER_TOPIC:
                offset = min(offset, record.queue_offset + 1)
        self.queue_offset = QueueOffset(max(low, min(offset, high)))

    def _remember_units(self, newest: tuple[int, TimerUnit] | None) -> None:
        """Find the units of the records from `queue_offset` on."""
        begin = self._reads.physical_at(TIMER_TOPIC, 0, self.queue_offset)
        if newest is None or begin < 0:
            return
        position: int | None = newest[0]
        while position is not None:
            unit = self.log.unit_at(position)
            if unit is None or unit.offset < begin:
                return
            if not unit.is_mark:
                self._known.add(unit.offset)
            position = self.log.position_before(position)

    def is_taken(
        self,
        offset: PhysicalOffset,
        queue_offset: QueueOffset,
        slot: int,
        topic_hash: int,
    ) -> bool:
        """Whether an earlier run has taken this record of the queue."""
        if offset in self._known:
            self._known.discard(offset)
            return True
        end_offset, end_slot = self._taken_before
        slot_ms = slot * self.precision_ms
        if queue_offset < end_offset and (
            slot < end_slot or self._is_returned(offset, slot_ms)
        ):
            return True
        return self.acted_records.has_record(offset, slot_ms, topic_hash)

    # -- while it runs

    def add(self, unit_bits: int, record: tuple[int, int, int], slot: int) -> None:
        """Add a record (offset, size, hash of its topic) to a slot.

        StoreError if the disk has no room; nothing is changed then.
        """
        offset, size, topic_hash = record
        precision_ms = self.precision_ms
        slot_ms, now_ms = slot * precision_ms, self._clock.now_ms()
        written_ms = write_time(
            slot_ms, now_ms // precision_ms * precision_ms, precision_ms
        )
        unit = TimerUnit(
            self.wheel.last_of(slot),
            unit_bits,
            written_ms,
            slot_ms - written_ms,
            offset,
            size,
            topic_hash,
        )
        position = self.log.append(unit)
        recalls = is_recall(unit_bits)
        self.wheel.add(slot, position, recalls=recalls)
        change = -1 if recalls else 1
        self.waiting_counts[topic_hash] = (
            self.waiting_counts.get(topic_hash, 0) + change
        )
        self._signals.timer_changed()

    def add_plain(
        self, records: bytes, position: int, end_slot: int
    ) -> tuple[int, list[tuple[str, int]]] | None:
        """Add the plain records from `position` on to slots before `end_slot`.

        It uses only existing slots. It advances `queue_offset`, and returns the next
        position and (topic, records) for each run of one topic. None if the first
        record is not plain; StoreError if the disk has no room: nothing is changed
        then.
        """
        taken_before = max(self._taken_before[0], self._acted_before)
        if self._known or self.queue_offset < taken_before:
            return None
        file = self.log.open_file()
        if file is None:
            return None
        added = add_units(
            file,
            self.wheel.slots,
            records,
            position,
            precision_ms=self.precision_ms,
            first_slot=self.read_slot,
            now=self._clock.now_ms() // self.precision_ms,
            end_slot=end_slot,
        )
        if added is None:
            return None
        following, queue_offset, topics = added
        for _, topic_hash, count in topics:
            self.waiting_counts[topic_hash] = (
                self.waiting_counts.get(topic_hash, 0) + count
            )
        self.move(queue_offset=QueueOffset(queue_offset))
        return following, [(topic, count) for topic, _, count in topics]

    def mark(self, record: tuple[int, int, int]) -> None:
        """Record for a Java broker that this record, which got no unit, is taken."""
        precision_ms = self.precision_ms
        now_ms = self._clock.now_ms() // precision_ms * precision_ms
        unit = TimerUnit(NO_UNIT, PLAIN, now_ms, MARK_DELAY_MS, *record)
        self.log.append(unit)
        self._signals.timer_changed()

    def move(
        self, *, queue_offset: QueueOffset | None = None, slot: int | None = None
    ) -> None:
        """Advance to `queue_offset` (earlier records are taken) and `slot` (earlier
        slots are delivered).
        """
        if queue_offset is not None and queue_offset != self.queue_offset:
            assert queue_offset > self.queue_offset, f"{queue_offset} is taken"
            self.queue_offset = queue_offset
            self._signals.timer_changed()
        if slot is not None and slot > self.read_slot:
            self.read_slot = slot
            self._signals.timer_changed()

    def follow_clock(self, slot: int) -> None:
        """Record that no message waits for a slot before the current one.

        If the clock was set back, `read_slot` moves back, because new messages may then
        wait for slots that had passed.
        """
        if slot < self.read_slot:
            log_end = self._record_end(self.queue_offset)
            here = ClockReturn(log_end, self.read_slot * self.precision_ms)
            self._returns = add_return(self._returns, here)
        if slot != self.read_slot:
            self.read_slot = slot
            self._signals.timer_changed()

    def has_delivered(self, at_ms: int, queue_end: int) -> bool:
        """Whether all messages up to a time are delivered; the queue of the timer ends
        at `queue_end`.

        While no message waits, the delivery sleeps, and `read_slot` stays.
        """
        if self.read_slot * self.precision_ms > at_ms:
            return True
        first = self.wheel.first_slot()
        waits = first is not None and first * self.precision_ms <= at_ms
        return not waits and self.queue_offset >= queue_end

    def count_delivered(self, topic_hash: int, messages: int = 1) -> None:
        """Count messages that left their slot."""
        count = self.waiting_counts.get(topic_hash, 0) - messages
        if count > 0:
            self.waiting_counts[topic_hash] = count
        else:
            self.waiting_counts.pop(topic_hash, None)

    def read_chain(self, slot: int, after: int) -> Generator["array[int]"]:
        """Yield the positions of a slot's units after a position, newest first, in
        parts.
        """
        slot_ms, position = slot * self.precision_ms, self.wheel.last_of(slot)
        while position > after:
            part, position = self.log.read_chain(position, after, CHAIN_PART)
            yield self.acted_records.remove_from(part, slot_ms, self.log)

    def due_records(
        self, positions: "array[int]"
    ) -> tuple[list[bytes], list[bytes], list[int]]:
        """Return the records of plain units, as the compiled `due_records` does.

        An entry of the timer's queue verifies each record.
        """
        queue = self._queues.get(TIMER_TOPIC, 0)
        if queue is None:
            return [], [], []
        return due_records(
            self.log.files,
            positions,
            self._commit_log.reader,
            queue,
            queue.file_of,
            min_offset=queue.min_offset,
            confirm_offset=self._positions.visible,
            now_ms=self._clock.now_ms(),
        )

    # -- durability

    def flush_steps(self) -> Generator[Step]:
        """Make the current state durable; yields the steps that block."""
        state = self._delivery_state()
        if self._positions.durable.value < self._commit_log.end_offset:
            yield self._durability.flush
        yield self.log.flush
        yield partial(self._save, *state, 0)
        self._flushes += 1
        if self._flushes % DROP_EVERY == 0:
            yield from self._drop_steps()

    def _delivery_state(self) -> tuple[int, tuple[ClockReturn, ...], int]:
        """Return the current values of the checkpoint's fields, in the order of
        `_save`.
        """
        return self.read_slot * self.precision_ms, self._returns, self.queue_offset

    def _save(
        self,
        read_ms: int,
        returns: tuple[ClockReturn, ...],
        queue_offset: int,
        log_flushed: int,
    ) -> None:
        check = self.checkpoint
        check.read_ms, check.returns = read_ms, returns
        check.queue_offset = check.master_queue_offset = queue_offset
        check.log_flushed = log_flushed
        check.counter += 1
        check.changed_ms = self._clock.now_ms()
        check.save(self._check_path)

    def _drop_steps(self) -> Generator[Step]:
        """Remove files of the log whose slots are all delivered."""
        if len(self.log.file_starts()) < 2:
            return
        oldest = self.wheel.oldest_position()
        end = self.log.end_offset if oldest is None else oldest
        dropped = self.log.drop_before(end)
        for file in dropped:
            yield file.unlink
            file.close()

    def close(self, *, is_clean: bool) -> None:
        """Save all for the next start, also for the start of a Java broker; blocks.

        The commit log must be durable if the stop is clean.
        """
        if not self.is_open:
            return
        self.is_open = False
        try:
            if is_clean:
                self.log.flush()
                self.wheel.save(self._wheel_path)
                self._save(*self._delivery_state(), self.log.end_offset)
        except OSError as error:
            logger.error(
                "cannot flush the timer; the next start reads more of its log: %s",
                error,
            )
        finally:
            self.log.close()

    # -- acting masters

    def load_checkpoint(self) -> None:
        """On a slave, read the file: the progress of the master and of this slave."""
        self.checkpoint = TimerCheckpoint.load(self._check_path) or self.checkpoint

    def is_delivered(
        self, offset: PhysicalOffset, queue_offset: QueueOffset, slot: int
    ) -> bool:
        """On a slave, whether the checkpoint covers a record of the timer's queue."""
        check, slot_ms = self.checkpoint, slot * self.precision_ms
        if queue_offset < check.master_queue_offset and slot_ms < check.read_ms:
            return True
        done = (*check.returns, *self.acted_records.parts)
        return any(each.is_delivered(offset, slot_ms) for each in done)

    def save_acting_progress(
        self, queue_offset: QueueOffset, slot: int, whole_slot: int
    ) -> None:
        """On a slave that acts as the master, record which messages it has delivered.

        All records before `queue_offset` with slots before `whole_slot` are delivered.
        Records before `slot` are delivered, too, except records that roll and records
        of topics that wait for the master. The file does not have `slot`: a master asks
        for it. The file keeps an earlier pair of offset and slot if one of the two is
        larger. A mixed pair would cover records that no broker has delivered.
        """
        check, precision_ms = self.checkpoint, self.precision_ms
        end = self._record_end(queue_offset)
        self.acted_records.add([ClockReturn(end, slot * precision_ms)])
        whole_ms = whole_slot * precision_ms
        if queue_offset < check.master_queue_offset or whole_ms < check.read_ms:
            return
        check.master_queue_offset, check.read_ms = queue_offset, whole_ms
        check.counter += 1
        check.changed_ms = self._clock.now_ms()
        check.save(self._check_path)

    def encode_progress(self) -> bytes:
        """Return the checkpoint, for slaves and for a master that comes back."""
        check = self.checkpoint
        parts = () if self.is_open else self.acted_records.parts
        returns = (*check.returns, *parts)
        return msgspec.structs.replace(check, returns=returns).encode()

    def take_back(self, data: bytes) -> bool:
        """Copy the progress of a slave that acted as the master; False if it is
        invalid.

        Records that the slave did not have are delivered here.
        """
        found = TimerCheckpoint.decode(data)
        if found is None:
            return False
        whole = ClockReturn(
            self._record_end(QueueOffset(found.master_queue_offset)), found.read_ms
        )
        self.acted_records.add(self._within_log((*found.returns, whole)))
        self._acted_before = self._reads.max_offset(TIMER_TOPIC, 0)
        self.wheel = TimerWheel()
        self.waiting_counts.clear()
        self._build([])
        self._signals.timer_changed()
        return True

    def _within_log(self, parts: Iterable[ClockReturn]) -> tuple[ClockReturn, ...]:
        """Limit parts of a progress to the log, which may have lost its end."""
        end = self._commit_log.end_offset
        return tuple(each._replace(log_end=min(each.log_end, end)) for each in parts)

    def _record_end(self, queue_offset: QueueOffset) -> int:
        """Return a physical offset after the records before `queue_offset`."""
        begin = self._reads.physical_at(TIMER_TOPIC, 0, queue_offset)
        return begin if begin >= 0 else self._commit_log.end_offset

    def save_master_checkpoint(self, data: bytes) -> bool:
        """On a slave, save the checkpoint of the master; False if it is invalid.

        A slave has no timer log: as a master it takes the whole queue, without the
        messages that were delivered before `read_ms`.
        """
        found = TimerCheckpoint.decode(data)
        if found is None:
            return False
        found.log_flushed = 0
        found.master_queue_offset, found.queue_offset = found.queue_offset, 0
        if found != self.checkpoint:
            self.checkpoint = found
            found.save(self._check_path)
        return True


def is_recall(bits: int) -> bool:
    """Whether a unit recalls another message when its slot is due."""
    return bool(bits & RECALLS) and not bits & ROLLS
