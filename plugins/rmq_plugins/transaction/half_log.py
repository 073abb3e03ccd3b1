"""The half queue: the state of open transactions.

The broker stores a half message in RMQ_SYS_TRANS_HALF_TOPIC with REAL_TOPIC and
REAL_QID. A check stores it again at the end of the queue. TRAN_PREPARED_QUEUE_OFFSET
then has its first offset, the *root*; the newest record of a root is the *live* one.
`OpQueue` has the ends of transactions. The offsets of the group CID_RMQ_SYS_TRANS are
the progress on both queues.

Crash contract: a start finds commits after the last op message in the log, where each
committed record names its half. So the broker delivers nothing twice.

Known in Java as `TransactionalMessageBridge`.
"""

import logging
import re
from collections import Counter
from contextlib import suppress
from itertools import islice
from typing import Final

import trio
from msgspec.structs import replace

from rmq.plugin import (
    BrokerContext,
    GetStatus,
    PhysicalOffset,
    PutStatus,
    QueueOffset,
    RecordDamaged,
    RequestRejected,
)
from rmq.plugin.native import HalfSends
from rmq.protocol import properties as names
from rmq.protocol.bodies.statistics import COMMIT_NUMS
from rmq.protocol.codes import ResponseCode
from rmq.protocol.flags import (
    PERM_READ_WRITE,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
)
from rmq.protocol.message import Message
from rmq.protocol.records import StoredMessage, decode_or_error
from rmq.protocol.topics import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    is_dlq_topic,
    is_retry_topic,
)
from rmq_plugins.transaction.op_queue import GROUP, OpQueue, records_from

logger = logging.getLogger(__name__)

MAX_OPEN: Final = 1_000_000
"""Maximum number of open transactions; each uses memory after its first check."""

MAX_EXAMINED: Final = 1_000
"""Maximum number of transactions that the search for the oldest open one examines."""

MAX_WALKED: Final = 10_000
"""Limit of half messages, ended or not, that the search for open ones examines."""

MAX_SHOWN: Final = 200

ENDED_STEPS: Final = 16
"""Number of finished half messages that are skipped in the time of one examination."""

_OFFSET: Final = re.compile("[0-9]{1,19}")


class HalfLog:
    """The half queue of a broker; `ops` has the ended transactions.

    Every half message before `progress` has ended or was stored again.
    """

    def __init__(self, broker: BrokerContext) -> None:
        self._messages = broker.messages
        self._positions = broker.positions
        self._append = broker.put.append
        self._offsets = broker.offsets
        self._topics = broker.topics
        self._host = broker.store_host
        self._log_file_size = broker.store_config.commit_log_file_size
        self.ops = OpQueue(broker)
        self.progress = 0
        self.woken = trio.Event()
        self._live: dict[int, int] = {}
        self._roots: dict[int, int] = {}
        self._failures = broker.monitor.failures
        self._statistics = broker.statistics
        self._open = broker.statistics.open_transactions
        self._load_open(broker)
        self._counted = self.progress
        self._queues = broker.queues
        self._config = broker.config
        self._committing: set[int] = set()
        """Half messages whose commits compiled code has staged in this poll."""

        self.native = HalfSends(may_open=self._may_open, on_open=self._count_half)
        """The form of `convert_to_half` in compiled sends."""

    # -- half messages

    @property
    def has_pending(self) -> bool:
        """Whether there may be an open transaction."""
        return self.progress < self._messages.max_offset(TRANS_HALF_TOPIC, 0)

    def convert_to_half(self, message: Message) -> None:
        """Move a transactional message, unless it is a retry, to the half topic."""
        properties = message.properties
        if properties[names.TRAN_MSG].lower() != "true":
            return
        if is_retry_topic(message.topic) or is_dlq_topic(message.topic):
            return
        if not self._has_room():
            raise RequestRejected(
                ResponseCode.SYSTEM_BUSY,
                f"{MAX_OPEN} transactions are open; wait until some are ended",
            )
        message.remove_property(names.TRAN_PREPARED_QUEUE_OFFSET)
        message.remove_property(names.TRANSACTION_CHECK_TIMES)
        if names.UNIQ_KEY in properties:
            message.set_property(names.TRANSACTION_ID, properties[names.UNIQ_KEY])
        message.set_property(names.REAL_TOPIC, message.topic)
        message.set_property(names.REAL_QID, str(message.queue_id))
        message.sys_flag &= ~TRANSACTION_MASK
        self._count_half(message.topic)
        message.topic, message.queue_id = TRANS_HALF_TOPIC, 0
        if self.native.queue is None:
            self._register_queue()

    def _has_room(self) -> bool:
        """Whether one more transaction may be open."""
        end = self._messages.max_offset(TRANS_HALF_TOPIC, 0)
        return end - self.progress - len(self.ops) < MAX_OPEN

    def _may_open(self) -> bool:
        """Whether compiled sends may store one more half message."""
        return not self._config.reject_transaction_message and self._has_room()

    def _count_half(self, topic: str) -> None:
        self._open[topic] += 1
        self.woken.set()

    def _register_queue(self) -> None:
        """Let compiled sends write the half queue, after its first message."""
        queue = self._queues.get(TRANS_HALF_TOPIC, 0)
        if queue is not None and not queue.is_batch:
            self.native.register(queue)

    @property
    def end_offset(self) -> int:
        """The end of the half queue."""
        return self._messages.max_offset(TRANS_HALF_TOPIC, 0)

    def half_at(self, physical_offset: int) -> StoredMessage | None:
        """Return the half message that starts at a physical offset."""
        return self._read_record(TRANS_HALF_TOPIC, physical_offset)

    def discarded_at(self, physical_offset: int) -> StoredMessage | None:
        """Return the discarded transaction that starts at a physical offset."""
        return self._read_record(TRANS_CHECK_MAX_TIME_TOPIC, physical_offset)

    def _read_record(self, topic: str, physical_offset: int) -> StoredMessage | None:
        if physical_offset < 0:
            return None
        record = self._messages.verified_message_at(PhysicalOffset(physical_offset))
        return record if record is not None and record.topic == topic else None

    def read_head(self) -> tuple[StoredMessage, Exception | None] | None:
        """Return the half message at `progress`, with the error if its bytes are
        damaged.

        It skips half messages that the store has deleted.
        """
        while self.has_pending:
            found = self._messages.get(
                TRANS_HALF_TOPIC, 0, QueueOffset(self.progress), 1, is_own=True
            )
            if found.status is GetStatus.FOUND:
                return decode_or_error(found.body, 0)
            if found.next_begin_offset <= self.progress:
                return None
            self.progress = found.next_begin_offset
        return None

    def find_open(self) -> tuple[bool, StoredMessage | None]:
        """Return whether there is a half message at `progress`, and the message if its
        transaction is open. Skip ended transactions and damaged records.
        """
        if self.skip_ended(ENDED_STEPS):
            return True, None
        head = None
        with suppress(RecordDamaged):
            head = self.read_head()
        if head is None:
            return False, None
        record, error = head
        with self._failures.skip_on_error("transaction", record):
            if error is not None:
                raise error
            live = self.live_offset(record)
            if live == record.queue_offset and live not in self.ops:
                return True, record
        self.advance()
        return True, None

    def live_offset(self, record: StoredMessage) -> int:
        """Return the offset of the newest record of the same transaction."""
        root = _root_of(record)
        return self._live.get(root, root)

    def is_forgotten(self, live: int) -> bool:
        """Whether the transaction is no longer known: ended or discarded."""
        return live < self.progress

    def skip_ended(self, most: int) -> bool:
        """Skip ended half messages at `progress` without a read; False if there is
        none.
        """
        first = self.progress
        stop = min(first + most, self._messages.max_offset(TRANS_HALF_TOPIC, 0))
        while self.progress < stop and self.progress in self.ops:
            self._drop_head()
        assert first <= self.progress <= max(first, stop), f"{self.progress} of {stop}"
        return self.progress > first

    def advance(self) -> None:
        """Skip the half message at `progress`."""
        assert self.has_pending, f"there is no half at {self.progress}"
        self._drop_head()

    def _drop_head(self) -> None:
        offset = self.progress
        self.ops.forget_half(offset)
        root = self._roots.pop(offset, None)
        if root is not None and self._live.get(root) == offset:
            del self._live[root]
        self.progress = offset + 1

    def count_checked(self) -> tuple[int, int]:
        """Return the number of open transactions that were checked before.

        Also return the store time of the oldest transaction in ms, -1 if there is none.
        """
        first = islice(self._live.items(), MAX_EXAMINED)
        oldest = next((root for root, live in first if live not in self.ops), None)
        if oldest is None:
            return 0, -1
        place = TRANS_HALF_TOPIC, 0, QueueOffset(oldest)
        return len(self._live), self._messages.store_time_at(*place)

    def open_offsets(self) -> list[int]:
        """Return the queue offsets of the oldest open half messages."""
        end = self._messages.max_offset(TRANS_HALF_TOPIC, 0)
        walked = range(self.progress, min(end, self.progress + MAX_WALKED))
        return list(islice((at for at in walked if at not in self.ops), MAX_SHOWN))

    def count_end(self, topic: str, count: int = 1) -> None:
        """Subtract ended transactions from the open ones of a topic."""
        if self._open[topic] > count:
            self._open[topic] -= count
        else:
            del self._open[topic]

    def renew_half(self, record: StoredMessage, times: int) -> StoredMessage | None:
        """Store a half message again at the end of the queue; None if the store refuses
        it.
        """
        message = record.to_message()
        root = _root_of(record)
        message.set_property(names.TRAN_PREPARED_QUEUE_OFFSET, str(root))
        if times:
            message.set_property(names.TRANSACTION_CHECK_TIMES, str(times))
        result = self._append(message)
        if result.status is not PutStatus.PUT_OK:
            return None
        assert result.queue_offset > record.queue_offset, (
            "a renewed half has a larger offset"
        )
        self._live[root] = result.queue_offset
        self._roots[result.queue_offset] = root
        is_v6 = len(self._host) > 8
        return replace(
            record,
            queue_offset=result.queue_offset,
            physical_offset=result.physical_offset,
            store_timestamp=result.store_ms,
            store_host=self._host,
            sys_flag=record.sys_flag & ~STORE_HOST_V6 | (STORE_HOST_V6 * is_v6),
            properties_text=message.stored_properties(),
        )

    def discard_half(self, record: StoredMessage) -> bool:
        """Copy a half message to the topic of discarded transactions."""
        self._topics.ensure(TRANS_CHECK_MAX_TIME_TOPIC, queues=1, perm=PERM_READ_WRITE)
        message = record.to_message()
        message.topic, message.queue_id = TRANS_CHECK_MAX_TIME_TOPIC, 0
        if self._append(message).status is not PutStatus.PUT_OK:
            return False
        self.count_end(record.properties.get(names.REAL_TOPIC, ""))
        return True

    def resume_half(self, record: StoredMessage) -> PutStatus:
        """Store a discarded half as a new one that was never checked."""
        assert record.topic == TRANS_CHECK_MAX_TIME_TOPIC, record.topic
        message = record.to_message()
        message.remove_property(names.TRAN_PREPARED_QUEUE_OFFSET)
        message.set_property(names.TRANSACTION_CHECK_TIMES, "0")
        message.topic, message.queue_id = TRANS_HALF_TOPIC, 0
        status = self._append(message).status
        if status is PutStatus.PUT_OK:
            self._open[message.properties.get(names.REAL_TOPIC, "")] += 1
            self.woken.set()
        return status

    # -- commits of compiled code

    def begin_commit(self, offset: int) -> bool:
        """Begin the commit of a half message.

        False if its transaction has ended or begun to end, or if it was checked.
        """
        if (
            offset in self._live
            or offset in self.ops
            or offset < self.progress
            or offset in self._committing
        ):
            return False
        self._committing.add(offset)
        return True

    def end_commits(
        self, offsets: list[int], ages: list[tuple[str, int]], is_written: bool
    ) -> None:
        """Record the commits of a poll, if they are in the log.

        `ages` has the topic of each transaction, and the seconds since its half message
        was born.
        """
        self._committing.clear()
        if not is_written:
            return
        self.ops.record_ends(offsets)
        for (topic, age_s), count in Counter(ages).items():
            self.count_end(topic, count)
            self._statistics.count(COMMIT_NUMS, topic, count)
            self._statistics.commit_ages.add(age_s, count, topic=topic)

    # -- progress

    def save_progress(self) -> None:
        """Commit the progress on both queues to the table of consumer offsets."""
        if not self.has_pending:
            self._open.clear()  # also entries of refused messages
        passed = self.progress - self._counted
        if passed > 0:
            self._statistics.count_get(
                GROUP, TRANS_HALF_TOPIC, 0, 1, passed, 0, self.progress
            )
        self._counted = self.progress
        self._offsets.commit(GROUP, GROUP, TRANS_HALF_TOPIC, 0, self.progress)
        self.ops.save_progress(self.progress)

    def _load_open(self, broker: BrokerContext) -> None:
        """Find the open transactions."""
        low = self._messages.min_offset(TRANS_HALF_TOPIC, 0)
        self.progress = max(low, self._offsets.query(GROUP, TRANS_HALF_TOPIC, 0))
        self.progress = min(
            self.progress, self._messages.max_offset(TRANS_HALF_TOPIC, 0)
        )
        first: StoredMessage | None = None
        topics: dict[int, str] = {}
        for record in records_from(broker, TRANS_HALF_TOPIC, self.progress):
            first = first or record
            root = _root_of(record)
            topics.pop(self._live.get(root, root), None)
            topics[record.queue_offset] = record.properties.get(names.REAL_TOPIC, "")
            if root != record.queue_offset:
                self._live[root] = record.queue_offset
                self._roots[record.queue_offset] = root
        ended_at = self.ops.load(self.progress)
        if first is not None:
            self._find_commits(max(first.physical_offset, ended_at))
        self._open.update(t for live, t in topics.items() if live not in self.ops)

    def _find_commits(self, offset: int) -> None:
        """Find commits in the log that are not in the op queue."""
        end = self._positions.visible
        while offset < end:
            record = self._messages.message_at(PhysicalOffset(offset))
            if record is None:
                offset = (offset // self._log_file_size + 1) * self._log_file_size
                continue
            offset += record.size
            if record.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT:
                self._record_commit(record)

    def _record_commit(self, committed: StoredMessage) -> None:
        half = self.half_at(committed.prepared_transaction_offset)
        if half is None:
            return
        key = half.properties.get(names.TRANSACTION_ID)
        live = self.live_offset(half)
        if (
            key == committed.properties.get(names.TRANSACTION_ID)
            and live >= self.progress
            and live not in self.ops
        ):
            self.ops.record_end(live)


def _root_of(record: StoredMessage) -> int:
    """Return the offset at which the half message was first stored."""
    text = record.properties.get(names.TRAN_PREPARED_QUEUE_OFFSET, "")
    return int(text) if _OFFSET.fullmatch(text) else record.queue_offset
