"""The op queue: which transactions have ended.

The broker writes the end of a transaction to RMQ_SYS_TRANS_OP_HALF_TOPIC: tag `d`, body
`12,13,` (queue offsets of live half messages).

Crash contract: a rollback is in the op queue before the answer. The broker writes
commits there later, together. After a crash, `HalfLog` finds the commits that came
after the last op message in the log.
"""

import re
from collections import deque
from collections.abc import Iterator
from typing import Final

import trio

from rmq.plugin import BrokerContext, GetStatus, PutStatus, QueueOffset
from rmq.protocol import properties as names
from rmq.protocol.message import Message
from rmq.protocol.records import StoredMessage, decode_each
from rmq.protocol.topics import TRANS_OP_HALF_TOPIC

GROUP: Final = "CID_RMQ_SYS_TRANS"

_READ: Final = 32
_OFFSET: Final = re.compile(rb"\b[0-9]{1,18}\b")
_ENDED_TAG: Final = "d"


class OpQueue:
    """Known in Java as the op part of `TransactionalMessageBridge`."""

    def __init__(self, broker: BrokerContext) -> None:
        config = broker.config
        self._broker = broker
        self._append = broker.put.append
        self._offsets = broker.offsets
        self._clock = broker.clock
        self._host = broker.store_host
        self._size_limit = config.transaction_op_msg_max_size
        self._interval_s = config.transaction_op_batch_interval_ms / 1_000
        self._ended: set[int] = set()
        self._written: deque[tuple[int, int]] = deque()
        self._unwritten: list[int] = []
        self._unwritten_size = 0
        self._write_wanted = trio.Event()

    def __contains__(self, live: int) -> bool:
        """Whether the transaction was recently committed or rolled back."""
        return live in self._ended

    def __len__(self) -> int:
        """Return the number of ended transactions that are still in the table."""
        return len(self._ended)

    def forget_half(self, offset: int) -> None:
        """Drop a half message, ended or not, that the progress has passed."""
        self._ended.discard(offset)

    def record_end(self, live: int) -> None:
        """Record a commit, which `write_periodically` writes soon."""
        assert live not in self._ended, f"half {live} ended twice"
        self.record_ends([live])
        self.write_if_full()

    def record_ends(self, lives: list[int]) -> None:
        """Record commits; `write_if_full` follows."""
        self._ended.update(lives)
        self._unwritten += lives
        self._unwritten_size += len(lives) + sum(map(len, map(str, lives)))
        self._write_wanted.set()

    def write_if_full(self, *_: object) -> None:
        """Write the ended transactions if they fill an op message."""
        if self._unwritten_size >= self._size_limit:
            self.write_ended()

    def write_end(self, live: int) -> bool:
        """Write the end of a transaction at once; False if the store refuses."""
        self._unwritten.append(live)
        if self.write_ended():
            self._ended.add(live)
            return True
        self._unwritten.remove(live)
        return False

    def write_ended(self) -> bool:
        """Write the ends since the last op message; False if the store refuses."""
        ended = self._unwritten
        if not ended:
            return True
        now_ms = self._clock.now_ms()
        body = "".join([f"{offset}," for offset in ended]).encode()
        properties = {names.TAGS: _ENDED_TAG}
        op = Message(
            TRANS_OP_HALF_TOPIC, 0, body, 0, 0, now_ms, self._host, 0, 0, properties
        )
        result = self._append(op)
        if result.status is not PutStatus.PUT_OK:
            return False
        self._written.append((result.queue_offset, max(ended)))
        self._unwritten = []
        self._unwritten_size = 0
        return True

    async def write_periodically(self) -> None:
        """Write the ended transactions at each interval, until cancelled."""
        while True:
            await self._write_wanted.wait()
            await trio.sleep(self._interval_s)
            if self.write_ended():
                self._write_wanted = trio.Event()

    def save_progress(self, progress: int) -> None:
        """Commit the offset before which all op messages are older than `progress`."""
        while self._written and self._written[0][1] < progress:
            op_offset, _ = self._written.popleft()
            self._offsets.commit(GROUP, GROUP, TRANS_OP_HALF_TOPIC, 0, op_offset + 1)

    def load(self, progress: int) -> int:
        """Load the ends from `progress` on; return the last physical offset, or 0."""
        physical_offset = 0
        begin = max(0, self._offsets.query(GROUP, TRANS_OP_HALF_TOPIC, 0))
        for op in records_from(self._broker, TRANS_OP_HALF_TOPIC, begin):
            offsets = [int(n) for n in _OFFSET.findall(op.body)]
            self._ended.update(n for n in offsets if n >= progress)
            self._written.append((op.queue_offset, max(offsets, default=-1)))
            physical_offset = op.physical_offset
        return physical_offset


def records_from(
    broker: BrokerContext, topic: str, offset: int
) -> Iterator[StoredMessage]:
    """Read queue 0 of a topic from an offset on."""
    while True:
        found = broker.messages.get(topic, 0, QueueOffset(offset), _READ, is_own=True)
        if found.status is GetStatus.FOUND:
            for record, error in decode_each(found.body):
                if error is None:
                    yield record
                else:
                    broker.monitor.failures.add_record("transaction", record, error)
        elif found.next_begin_offset <= offset:
            return
        offset = found.next_begin_offset
