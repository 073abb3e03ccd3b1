"""LogFollower: the messages of all topics in the order of the log.

For `rmq tail`: one sequential read replaces pulls of all queues. A request looks at
`MAX_LOOKED` records at most and lets other tasks run after each millisecond.
"""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec
import trio

from rmq.core.offsets import PhysicalOffset
from rmq.observe.monitored_broker import MonitoredBroker
from rmq.observe.queries import (
    MAX_ROWS,
    MAX_TEXT,
    Query,
    Row,
    large_number_of,
    number_of,
)
from rmq.observe.record_reader import MAX_OPENED, Body, message_row, record_at
from rmq.protocol.properties import KEYS
from rmq.protocol.records import StoredMessage
from rmq.remoting.turns import TurnTaker
from rmq.store.salvage import next_record

MAX_LOOKED: Final = 2_000
MAX_WAIT_MS: Final = 10_000
SEARCHED_BYTES: Final = 1 << 20
"""Bytes after damage in which one turn looks for the next record."""

LOOK_AGAIN_S: Final = 0.1
"""Pause of a waiting request between two looks at the end of the log."""


async def follow_log(
    broker: MonitoredBroker, query: Query, may_read: Callable[[str], bool]
) -> dict[str, Any]:
    """Return messages from `offset` in the log on, and events after `event`.

    Without these fields it begins now.  `topics` is a pattern with * and ?, `key` and
    `text` must be in a message, `system=1` adds internal topics.  Waits up to `waitMs`
    until there is something.  `skip=1` continues at the end of the log after `n` rows.
    `hidden` counts messages of topics that the user may not read.
    """
    follower = LogFollower(broker, query, may_read)
    wait_ms = number_of(query, "waitMs", 0, MAX_WAIT_MS)
    count = number_of(query, "n", MAX_ROWS, MAX_ROWS)
    deadline = trio.current_time() + wait_ms / 1_000
    while True:
        await follower.read(count)
        is_late = trio.current_time() >= deadline
        if follower.rows or follower.has_events or follower.has_more or is_late:
            return follower.build_answer(is_short=query.get("skip") == "1")
        await trio.sleep(LOOK_AGAIN_S)


class LogFollower:
    """One request."""

    def __init__(
        self, broker: MonitoredBroker, query: Query, may_read: Callable[[str], bool]
    ) -> None:
        self._broker = broker
        self._log = broker.store.log
        self._may_read = may_read
        self._known: dict[str, bool] = {}
        self._pattern = query.get("topics", "")[:MAX_TEXT]
        self._key = query.get("key", "")[:MAX_TEXT]
        self._text = query.get("text", "")[:MAX_TEXT].encode("utf-8", "replace")
        self._system = query.get("system") == "1"
        event = large_number_of(query, "event")
        self._event = broker.monitor.events.last if event is None else event
        offset = large_number_of(query, "offset")
        self._offset = self._end if offset is None else offset
        if not self._is_known(self._offset):
            self._offset = self._end
        self._turns = TurnTaker(broker.next_turn)
        self._looked = self._hidden = 0
        self.rows: list[Row] = []

    @property
    def _end(self) -> int:
        return int(self._broker.store.positions.visible)

    def _is_known(self, offset: int) -> bool:
        """Whether an offset of the user is the start of a record, and not inside of a
        body.
        """
        if offset >= self._end:
            return offset == self._end  # in other cases the offset is of another log
        reads = self._broker.store.reads
        is_blank = reads.message_at(PhysicalOffset(offset)) is None
        return is_blank or reads.verified_message_at(PhysicalOffset(offset)) is not None

    @property
    def has_events(self) -> bool:
        """Whether something happened."""
        return self._broker.monitor.events.last > self._event

    @property
    def has_more(self) -> bool:
        """Whether the request has read its maximum, so that the next request must
        continue.
        """
        return self._looked >= MAX_LOOKED

    async def read(self, count: int) -> None:
        """Read until the end of the log, the wanted number of rows, or the maximum of a
        request.
        """
        self._offset = max(self._offset, self._log.min_offset)
        while self._offset < self._end and len(self.rows) < count:
            if self._looked >= MAX_LOOKED:
                return
            record = await record_at(self._broker, self._offset)
            if record is None:
                self._skip_unreadable()
            else:
                self._offset += record.size
                self._add_matching(record)
            await self._turns()

    def _skip_unreadable(self) -> None:
        """Skip a part of a damaged record, or of the blank end of a file.

        The new offset has a record, or the next part begins there.
        """
        size = self._broker.store_config.commit_log_file_size
        skipped = size - self._offset % size
        file = self._log.files.find(self._offset)
        if file is not None:
            at = self._offset - file.base_offset
            limit = at + SEARCHED_BYTES
            found = next_record(file, at + 1, file.write_position, start_limit=limit)
            if found is not None:
                skipped = found - at
            elif limit < file.write_position:
                skipped = SEARCHED_BYTES
        self._offset = min(self._end, self._offset + skipped)

    def _add_matching(self, record: StoredMessage) -> None:
        self._looked += 1
        topic = record.topic
        if not self._system and self._broker.topics.is_system(topic):
            return
        if self._pattern and not fnmatchcase(topic, self._pattern):
            return
        if topic not in self._known:
            self._known[topic] = self._may_read(topic)
        if not self._known[topic]:
            self._hidden += 1
            return
        if self._key and self._key not in record.properties.get(KEYS, ""):
            return
        if self._text and self._text not in Body(record, MAX_OPENED).content:
            return
        self.rows.append(message_row(record))

    def build_answer(self, *, is_short: bool) -> dict[str, Any]:
        """Return the records that were found, and the offset to continue from."""
        broker = self._broker
        events = broker.monitor.events.events_after(self._event)
        return {
            "now": broker.clock.now_ms(), "node": broker.config.broker_name,
            "offset": str(self._end if is_short else self._offset),
            "behind": 0 if is_short else max(0, self._end - self._offset),
            "event": str(broker.monitor.events.last),
            "put": broker.store.statistics().put_messages,
            "looked": self._looked, "hidden": self._hidden, "rows": self.rows,
            "events": [msgspec.to_builtins(each) for each in events],
        }  # fmt: skip
