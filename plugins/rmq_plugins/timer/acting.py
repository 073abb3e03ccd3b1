"""ActingDeliveries: an acting master sends due timed messages to other groups.

A slave has no slots. The slave reads the timer's queue from the first record on. It
keeps the earliest messages that the master has not delivered, by their time. The
progress is in the checkpoint. A master that comes back adopts this progress
(`Timer.take_back`), and delivers only the messages that this slave did not have.

Records of POP wait for the master. Java's broker sends them to another group, where the
acks of a checkpoint are missing, so acked messages come again.
"""

import heapq
from typing import Final

import trio

from rmq.plugin import BrokerContext, Escape, GetStatus, QueueOffset, RecordDamaged
from rmq.protocol import properties as names
from rmq.protocol.records import StoredMessage, decode_each
from rmq.protocol.topics import TIMER_TOPIC, revive_topic
from rmq_plugins.timer.deliver import Deliveries, parse_number, recall_keys

LOOK_S: Final = 0.5
"""Pause between two checks of the queue and of the clock."""

READ: Final = 32
"""Number of records of one read."""

MAX_KEPT: Final = 100_000
"""Maximum number of messages in memory, about 15 MB; messages with later times are read
again when these are sent.
"""

Entry = tuple[int, bool, int]
"""Slot, whether it is a message (recalls come first), and offset in the queue."""

_NONE: Final[Entry] = (-1, False, 0)
_LAST: Final[Entry] = (1 << 62, True, 0)


class ActingDeliveries:
    """Delivers on a slave, as long as it acts as the master."""

    def __init__(
        self, deliveries: Deliveries, escape: Escape, broker: BrokerContext
    ) -> None:
        self._deliveries = deliveries
        self._escape = escape
        self._timer = broker.timer
        self._messages = broker.messages
        self._failures = broker.monitor.failures
        self._clock = broker.clock
        self._next_turn = broker.next_turn
        self._left_topic = revive_topic(broker.config.broker_cluster_name)
        self._roll_window = broker.store_config.timer_roll_window
        self._first_left = _LAST[0]
        """The first slot with a record that waits for the master, or that rolls."""

        self._kept: list[Entry] = []
        """A heap of the earliest messages."""

        self._passed = self._saved = _NONE
        """The last entry that was delivered or skipped; and the same entry at the last
        save.
        """

        self._horizon = _LAST
        """Entries from this one on are not in memory."""

        self._next_offset = QueueOffset(0)
        self._term = 0
        self._slot = -1
        self._recalled: set[str] = set()
        self._sent: set[tuple[str, str]] = set()
        """Recalled keys of `_slot`, and the topics and keys of messages sent."""

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            term = self._escape.term
            if term:
                if term != self._term:
                    self._term = term
                    self.begin()
                await self.deliver_due()
            await trio.sleep(LOOK_S)

    def begin(self) -> None:
        """Begin at the progress of the checkpoint."""
        self._timer.load_checkpoint()
        self._passed = self._saved = _NONE
        self._slot = -1
        self._first_left = _LAST[0]
        self._read_again()

    def _read_again(self) -> None:
        """Read the queue from its first record."""
        self._kept.clear()
        self._horizon = _LAST
        self._next_offset = self._messages.min_offset(TIMER_TOPIC, 0)

    # -- the queue

    async def _read_new(self) -> bool:
        """Keep the records that arrived; False if one waits for its bytes."""
        while self._next_offset < self._messages.max_offset(TIMER_TOPIC, 0):
            try:
                found = self._messages.get(
                    TIMER_TOPIC, 0, self._next_offset, READ, is_own=True
                )
            except RecordDamaged:
                return False
            if found.status is GetStatus.FOUND:
                for record, error in decode_each(found.body):
                    with self._failures.skip_on_error("timer", record):
                        if error is not None:
                            raise error
                        self._keep(record)
            if found.next_begin_offset <= self._next_offset:
                return False
            self._next_offset = found.next_begin_offset
            await self._next_turn()
        return True

    def _keep(self, record: StoredMessage) -> None:
        """Keep a record that is not delivered yet, if it is one of the earliest."""
        out_ms = parse_number(record.properties.get(names.TIMER_OUT_MS))
        if out_ms is None:
            return
        slot = out_ms // self._timer.precision_ms
        place = record.physical_offset, record.queue_offset, slot
        if self._timer.is_delivered(*place):
            return
        if record.properties.get(names.REAL_TOPIC) == self._left_topic:
            self._first_left = min(self._first_left, slot)
            return
        stored_slot = record.store_timestamp // self._timer.precision_ms
        if slot - stored_slot >= self._roll_window:
            rolls_at = stored_slot + self._roll_window // 2
            self._first_left = min(self._first_left, rolls_at)
        is_message = names.TIMER_DEL_UNIQKEY not in record.properties
        entry = slot, is_message, record.queue_offset
        if not self._passed < entry < self._horizon:
            return
        heapq.heappush(self._kept, entry)
        if len(self._kept) > MAX_KEPT:
            self._kept = heapq.nsmallest(MAX_KEPT // 2, self._kept)
            self._horizon = self._kept.pop()

    # -- delivery

    async def deliver_due(self) -> None:
        """Send the messages that are due; save the progress."""
        is_whole = await self._read_new()
        while is_whole:
            now_slot = self._clock.now_ms() // self._timer.precision_ms
            is_sent = await self._deliver_before(now_slot)
            done_slot = now_slot
            if self._kept or self._horizon is not _LAST:
                first = self._kept[0] if self._kept else self._horizon
                done_slot = min(now_slot, first[0])
            if self._passed != self._saved:
                self._timer.save_acting_progress(
                    self._next_offset, done_slot, min(done_slot, self._first_left)
                )
                self._saved = self._passed
            if not is_sent or self._kept or self._horizon is _LAST:
                return
            self._read_again()
            is_whole = await self._read_new()

    async def _deliver_before(self, slot: int) -> bool:
        """Send the messages of earlier slots; False if one could not be sent."""
        while self._kept and self._kept[0][0] < slot:
            entry = self._kept[0]
            if entry[0] != self._slot:
                self._slot = entry[0]
                self._recalled.clear()
                self._sent.clear()
            if not await self._deliver_entry(entry):
                return False
            heapq.heappop(self._kept)
            self._passed = entry
        return True

    async def _deliver_entry(self, entry: Entry) -> bool:
        """Send the message of an entry, or skip it; False if it must be tried again
        later.
        """
        offset = QueueOffset(entry[2])
        try:
            found = self._messages.get(TIMER_TOPIC, 0, offset, 1, is_own=True)
        except RecordDamaged:
            return False
        if found.status is not GetStatus.FOUND:
            return True
        ((record, error),) = decode_each(found.body)
        with self._failures.skip_on_error("timer", record):
            if error is not None:
                raise error
            return await self._deliver_one(record)
        return True

    async def _deliver_one(self, record: StoredMessage) -> bool:
        properties = record.properties
        if names.TIMER_DEL_UNIQKEY in properties:
            self._recalled.add(properties[names.TIMER_DEL_UNIQKEY])
            return True
        key = properties.get(names.REAL_TOPIC, ""), properties.get(names.UNIQ_KEY, "")
        is_copy = names.TIMER_ROLL_TIMES in properties and key in self._sent
        if is_copy or not self._recalled.isdisjoint(recall_keys(record)):
            return True
        message = self._deliveries.message_of(record)
        if message is None:
            return True
        if self._escape.term != self._term or not await self._escape.send(message):
            return False
        self._sent.add(key)
        return True
