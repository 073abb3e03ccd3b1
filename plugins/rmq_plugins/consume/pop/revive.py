"""Reviver: messages without an ack in time become visible again.

One task sleeps until the first checkpoint is due. The task stores the open messages in
the retry topic of their group, and only then ends the checkpoint. It also writes two
kinds of records: checkpoints older than `rmq.popMemoryMs`, and once per second the acks
of written checkpoints.

The task reads the revive topic, too. The timer delivers the records of due checkpoints
there. A checkpoint of an earlier run or of a Java broker is not in memory: the reviver
*adopts* it. An adopted checkpoint is due after the timer has delivered all records of
its time, because its acks are among them. The group CID_RMQ_SYS_REVIVE_GROUP has the
offset of the last record up to which all checkpoints have ended.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from rmq.plugin import (
    Alarm,
    BrokerContext,
    Foreign,
    GetStatus,
    PutStatus,
    QueueOffset,
    RecordDamaged,
    RequestRejected,
    SparseLog,
    TurnTaker,
)
from rmq.plugin.native import Checkpoint, PopQueue
from rmq.protocol import properties as names
from rmq.protocol.bodies.pop import AckRecord, CheckpointRecord
from rmq.protocol.inner_batch import inner_messages
from rmq.protocol.records import StoredMessage, decode_each, decode_stored
from rmq.protocol.topics import TIMER_TOPIC
from rmq_plugins.consume.pop.checkpoints import MAX_OF_QUEUE, Checkpoints
from rmq_plugins.consume.pop.records import (
    ACK,
    BATCH_ACK,
    CK,
    PopRecords,
    read_acks,
    read_checkpoint,
)

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
NOT_WRITTEN_MS: Final = 2_000
"""Time before the end of a checkpoint in which the reviver no longer writes it."""

TICK_MS: Final = 1_000
LEAST_TICK_MS: Final = 100
BATCH: Final = 32
RETRY_MS: Final = 1_000
COMMITTED_AT_ONCE: Final = 1_000
"""Records of the revive topic that end between two reads of the clock, in 0.2 ms."""

_NEVER_MS: Final = 1 << 62

_NEVER_STORED: Final = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


class Reviver:
    """Known in Java as `PopReviveService` and `PopBufferMergeService`."""

    def __init__(
        self, broker: BrokerContext, checkpoints: Checkpoints, records: PopRecords
    ) -> None:
        self._messages = broker.messages
        self._queues = broker.queues
        self._durability = broker.durability
        self._positions = broker.positions
        self._timer = broker.timer
        self._failures = broker.monitor.failures
        self._topics = broker.topics
        self._groups = broker.groups
        self._offsets = broker.offsets
        self._arrivals = broker.arrivals
        self._clock = broker.clock
        self.next_turn = broker.next_turn
        self._broker_name = broker.config.broker_name
        self._config = broker.config
        self.checkpoints = checkpoints
        self._records = records
        self._alarm = Alarm(broker.clock.steady_ms)
        self.wake_at = self._alarm.wake_at
        checkpoints.table.stay_ms = self._config.pop_memory_ms
        self._tick_ms = max(min(TICK_MS, self._config.pop_memory_ms), LEAST_TICK_MS)
        self._unwritten_acks: OrderedDict[Checkpoint, None] = OrderedDict()
        self._progress = {
            queue_id: _QueueProgress(self._first_offset(queue_id))
            for queue_id in range(broker.config.revive_queue_nums)
        }
        self.revived = 0
        for queue_id in self._progress:
            if self._find_lag(queue_id):
                self._alarm.wake_at(0)

    def _first_offset(self, queue_id: int) -> int:
        topic = self._records.revive_topic
        return self._offsets.query(GROUP, topic, queue_id) + 1

    # -- calls of the handlers

    def add_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Add a new checkpoint, or write it at once; False if the store refuses it."""
        checkpoints = self.checkpoints
        at_once = not checkpoints.is_buffered
        at_once |= checkpoints.is_full or checkpoint.queue.count >= MAX_OF_QUEUE
        if at_once and not self._write(checkpoint):
            return False
        if checkpoint.is_written and (checkpoints.is_full or checkpoints.is_stopping):
            checkpoints.hold_offset(checkpoint)
            return True
        checkpoints.table.add(checkpoint)
        checkpoints.commit(checkpoint.queue)
        if not checkpoint.is_written:
            checkpoints.table.add_young(checkpoint)
        return True

    def write_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Write a new checkpoint at once; False if the store refuses it."""
        if not self._write(checkpoint):
            return False
        if not self.checkpoints.is_full:
            self.checkpoints.table.add(checkpoint)
        return True

    def facts(self) -> dict[str, object]:
        """Return the facts for tools and metrics."""
        return {
            "checkpoints": self.checkpoints.table.count,
            "queues": len(self.checkpoints.queues),
            "revived": self.revived,
            "reviveBehind": sum(map(self._find_lag, self._progress)),
        }

    def ack(self, checkpoint: Checkpoint, offset: int) -> bool:
        """Record an ack of a checkpoint in memory.

        False if the log must have the ack at once and the store refuses it.
        """
        if checkpoint.clear(offset):
            if checkpoint.is_written:
                self._record_ack(checkpoint, offset)
            if checkpoint.is_acked:
                self.checkpoints.end(checkpoint)
        if self.checkpoints.is_buffered or not checkpoint.acked:
            return True
        deque(self._write_acks(), 0)
        return not checkpoint.acked

    def apply_acks(self, acks: list[tuple[Checkpoint, int]]) -> None:
        """Record the acks of written checkpoints that compiled code served in one poll.

        The compiled handler has cleared the bits of these messages.
        """
        for checkpoint, offset in acks:
            self._record_ack(checkpoint, offset)
        for checkpoint, _ in acks:
            if checkpoint.is_acked:
                self.checkpoints.end(checkpoint)

    def _record_ack(self, checkpoint: Checkpoint, offset: int) -> None:
        """Let the next tick write an ack of a written checkpoint."""
        if checkpoint.acked is None:
            checkpoint.acked = []
        checkpoint.acked.append(offset)
        self._unwritten_acks[checkpoint] = None
        self._alarm.wake_at(self._clock.steady_ms() + self._tick_ms)

    def on_arrivals(self, touched: Mapping[tuple[str, int], int]) -> None:
        """Wake the task after the timer has delivered records."""
        queues = self._queues.of_topic(self._records.revive_topic)
        if any(self._find_lag(queue.queue_id) for queue in queues):
            self._alarm.wake_at(0)

    def stop(self) -> None:
        """Write all checkpoints and acks in memory, because the broker stops."""
        self.checkpoints.stop_buffering()
        for checkpoint in self.checkpoints.table.all():
            if not checkpoint.is_written and not checkpoint.is_acked:
                self._write(checkpoint)
        deque(self._write_acks(), 0)
        self._durability.flush()
        for queue in self.checkpoints.queues.values():
            self.checkpoints.commit(queue)

    # -- the task

    async def run(self) -> None:
        """Revive, write and read until cancelled."""
        try:
            while True:
                await self._run_turn()
        finally:
            deque(self.checkpoints.commit_delayed(), 0)  # slaves have all records

    async def _run_turn(self) -> None:
        self._set_alarm()
        await self._alarm.wait()
        for queue_id in self._progress:
            while self.read_batch(queue_id):
                await self.next_turn()
        await self.tick()
        await self.revive_due()
        self._arrivals.flush()
        await self.next_turn()

    def _set_alarm(self) -> None:
        table = self.checkpoints.table
        for at_ms in table.next_due_ms(), table.next_young_ms():
            if at_ms is not None:
                self._alarm.wake_at(at_ms)
        is_waiting = self.checkpoints.has_delayed_commits or self._unwritten_acks
        if is_waiting or any(progress.open for progress in self._progress.values()):
            self._alarm.wake_at(self._clock.steady_ms() + self._tick_ms)
        table.wake_ms = int(min(self._alarm.at_ms, _NEVER_MS))

    async def tick(self) -> None:
        """Write old checkpoints and collected acks, and move offsets, in turns."""
        now_ms, steady_ms = self._clock.now_ms(), self._clock.steady_ms()
        table, turns = self.checkpoints.table, TurnTaker(self._let_others_run)
        while (checkpoint := table.take_young(steady_ms)) is not None:
            if checkpoint.is_written or checkpoint.due_ms - now_ms < NOT_WRITTEN_MS:
                continue
            if not self._write(checkpoint):
                table.add_young(checkpoint)
                break
            await turns()
        await turns.run_each(self._write_acks())
        await turns.run_each(self.checkpoints.commit_delayed())
        await turns.run_each(self._commit_progress())

    async def _let_others_run(self) -> None:
        """Let all other tasks run, first the tasks that wait for stored messages."""
        self._arrivals.flush()
        await self.next_turn()

    def _write(self, checkpoint: Checkpoint) -> bool:
        result = self._records.put_checkpoint(checkpoint)
        if result.status is not PutStatus.PUT_OK:
            return False
        checkpoint.is_written, checkpoint.stored_end = True, result.end_offset
        self.checkpoints.commit(checkpoint.queue)
        return True

    def _write_acks(self) -> Iterator[None]:
        """Write the acks of each checkpoint together, one checkpoint at each step."""
        for _ in range(len(self._unwritten_acks)):
            if not self._unwritten_acks:
                return  # a stop has written them
            checkpoint, _ = self._unwritten_acks.popitem(last=False)
            if not checkpoint.acked:
                continue
            result = self._records.put_acks(checkpoint, checkpoint.acked)
            if result.status is PutStatus.PUT_OK:
                checkpoint.acked = None
            else:
                self._unwritten_acks[checkpoint] = None
            yield

    # -- reviving

    async def revive_due(self) -> None:
        """Store the open messages of due checkpoints again, in turns."""
        table, turns = self.checkpoints.table, TurnTaker(self._let_others_run)
        are_acks_written = not self._unwritten_acks
        while (checkpoint := table.take_due(self._clock.steady_ms())) is not None:
            if checkpoint.is_adopted and not (
                are_acks_written and self._has_all_acks(checkpoint)
            ):
                table.delay_due(self._clock.steady_ms() + TICK_MS, checkpoint)
                await self.next_turn()
                continue
            if not await self.revive(checkpoint, turns):
                table.delay_due(self._clock.steady_ms() + RETRY_MS, checkpoint)
                return

    def _has_all_acks(self, checkpoint: Checkpoint) -> bool:
        """Whether the reviver has read all acks of the checkpoint's time."""
        timer, end = self._timer, self._messages.max_offset(TIMER_TOPIC, 0)
        if not timer.has_delivered(checkpoint.due_ms + timer.precision_ms, end):
            return False
        is_read = not any(self._find_lag(queue_id) for queue_id in self._progress)
        return is_read or self.checkpoints.is_full

    async def revive(self, checkpoint: Checkpoint, turns: TurnTaker) -> bool:
        """Store the open messages again; False if one cannot be stored now.

        Other tasks run in between, also acks of these messages.
        """
        queue = checkpoint.queue
        is_wanted = self._topics.get(queue.topic) and self._groups.get(queue.group)
        for offset in checkpoint.open_offsets() if is_wanted else ():
            await turns()
            if offset not in checkpoint.open_offsets():
                continue
            if not self._revive_one(checkpoint, offset):
                return False
            checkpoint.clear(offset)
            if checkpoint.is_written:
                self._record_ack(checkpoint, offset)
        self.checkpoints.end(checkpoint)
        return True

    def _revive_one(self, checkpoint: Checkpoint, offset: int) -> bool:
        """Store one message again, or skip it.

        False if the store is busy, or the message waits for its bytes.
        """
        queue = checkpoint.queue
        place = f"queue offset {offset} of {Foreign(queue.topic)}/{queue.queue_id}"
        try:
            with self._failures.skip_on_error("POP", place):
                return self._store_again(checkpoint, offset)
        except RecordDamaged:
            return False
        return True

    def _store_again(self, checkpoint: Checkpoint, offset: int) -> bool:
        """Store one message again if it exists; False if the store is busy."""
        for record in self._messages_at(checkpoint, offset):
            result = self._records.put_retry(record, checkpoint)
            if result.status is PutStatus.PUT_OK:
                checkpoint.stored_end = max(checkpoint.stored_end, result.end_offset)
                self.revived += 1
            elif result.status in _NEVER_STORED:
                logger.error(
                    "the message at %d cannot be stored again: it is too large for "
                    "maxMessageSize",
                    record.physical_offset,
                )
            else:
                return False
        return True

    def _messages_at(self, checkpoint: Checkpoint, offset: int) -> list[StoredMessage]:
        """Return a popped message; an empty list if it does not exist any more.

        In a Java broker's checkpoint the offset of an inner batch means all messages
        of the batch.
        """
        queue = checkpoint.queue
        found = self._messages.get(
            queue.topic, queue.queue_id, QueueOffset(offset), 1, is_own=True
        )
        if found.status is GetStatus.FOUND:
            batch = decode_stored(found.body)[0]
            records = inner_messages(batch, offset, 1)
            if checkpoint.is_adopted and batch.queue_offset == offset:
                named = {*checkpoint.offsets} - {offset}
                whole = inner_messages(batch)
                records = [each for each in whole if each.queue_offset not in named]
            is_same = records and records[0].queue_offset == offset
            if is_same and batch.physical_offset < checkpoint.log_end:
                return records
        logger.warning(
            "the message at %d of %s, popped by %s, does not exist any more",
            offset,
            Foreign(queue.topic),
            Foreign(queue.group),
        )
        return []

    # -- the revive topic

    def _find_lag(self, queue_id: int) -> int:
        if queue_id not in self._progress:
            return 0
        end = self._messages.max_offset(self._records.revive_topic, queue_id)
        return max(0, end - self._progress[queue_id].next_offset)

    def read_batch(self, queue_id: int) -> bool:
        """Read one batch of a queue of the revive topic.

        False if there is nothing to read or `checkpoints` is full. Also False if the
        first record is damaged, while another broker may still send its bytes.
        """
        progress = self._progress[queue_id]
        topic = self._records.revive_topic
        if not self._find_lag(queue_id) or self.checkpoints.is_full:
            return False
        offset = QueueOffset(progress.next_offset)
        try:
            found = self._messages.get(topic, queue_id, offset, BATCH, is_own=True)
        except RecordDamaged:
            self._alarm.wake_at(self._clock.steady_ms() + RETRY_MS)
            return False
        if found.status is GetStatus.FOUND:
            for record, error in decode_each(found.body):
                checkpoint = None
                with self._failures.skip_on_error("POP", record):
                    if error is not None:
                        raise error
                    checkpoint = self._read_record(record, queue_id)
                progress.open.append((record.queue_offset, checkpoint))
        if found.next_begin_offset <= progress.next_offset:
            return False
        progress.next_offset = found.next_begin_offset
        return True

    def _read_record(self, record: StoredMessage, queue_id: int) -> Checkpoint | None:
        """Apply a record; return the checkpoint that must end before its commit."""
        tags = record.properties.get(names.TAGS)
        if tags == CK:
            found = read_checkpoint(record.body)
            if found is not None:
                return self._adopt_checkpoint(found, queue_id, record)
        elif tags in (ACK, BATCH_ACK):
            acks = read_acks(record.body)
            if acks is not None:
                self._apply_ack_record(acks)
                return None
        logger.error(
            "the POP record at %d has an unknown type and is skipped",
            record.physical_offset,
        )
        return None

    def _adopt_checkpoint(
        self, found: CheckpointRecord, queue_id: int, record: StoredMessage
    ) -> Checkpoint | None:
        """Return the checkpoint of a record: one in memory, or a new one."""
        topic, group = found.topic or "", found.group or ""
        known = self.checkpoints.find(
            topic, group, found.queue_id, found.start, found.pop_ms
        )
        if known is not None:
            return known
        diffs = found.diffs or range(found.count)
        offsets = tuple(found.start + diff for diff in diffs)[:32]
        bits = (1 << len(offsets)) - 1 & ~found.bits
        if not bits or self._topics.get(topic) is None:
            return None
        queue = self.checkpoints.find_queue(topic, group, found.queue_id)
        if queue is None:  # no POP of this run: there is no offset to move
            queue = PopQueue(topic, group, found.queue_id, 0, is_gone=True)
        retries = found.retries or "0"
        checkpoint = Checkpoint(
            queue,
            found.start,
            found.pop_ms,
            found.invisible_ms,
            queue_id,
            offsets,
            record.physical_offset,
            bits=bits,
            suspend=found.suspend,
            retries=int(retries) if retries.isdecimal() else 0,
            is_written=True,
            is_adopted=True,
        )
        self.checkpoints.table.add(checkpoint)
        return checkpoint

    def _apply_ack_record(self, acks: AckRecord) -> None:
        key = acks.topic or "", acks.group or "", acks.queue_id, acks.start, acks.pop_ms
        checkpoint = self.checkpoints.find(*key)
        if checkpoint is None:
            return
        for offset in acks.offsets or [acks.offset]:
            checkpoint.clear(offset)
        if checkpoint.is_acked:
            self.checkpoints.end(checkpoint)

    def _commit_progress(self) -> Iterator[None]:
        """Commit the offsets of the revive topic up to which all checkpoints ended."""
        stable_end, topic = self._positions.stable.value, self._records.revive_topic
        for queue_id, progress in self._progress.items():
            while (ended := progress.end_some(stable_end)) is not None:
                with suppress(RequestRejected):  # the table of offsets is full
                    self._offsets.commit("a POP", GROUP, topic, queue_id, ended)
                yield


class _QueueProgress:
    """The next offset of a queue of the revive topic, and records not committed yet."""

    def __init__(self, start: int) -> None:
        self.next_offset = start
        self.open: deque[tuple[int, Checkpoint | None]] = deque()

    def end_some(self, stable_end: int) -> int | None:
        """Remove the first records whose checkpoints ended; return the last offset."""
        ended = None
        for _ in range(min(len(self.open), COMMITTED_AT_ONCE)):
            offset, checkpoint = self.open[0]
            if checkpoint is not None and (
                not checkpoint.is_done or checkpoint.stored_end > stable_end
            ):
                break
            ended = offset
            self.open.popleft()
        return ended
