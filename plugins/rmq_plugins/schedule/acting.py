"""ActingDeliveries: an acting master sends due delayed messages to other groups.

It continues at the offsets that the master had. The master takes the new offsets back
(`DelayOffsets.raise_to`), so it does not deliver these messages again. Java's master
does so only if their version is not older than its own: each delivery makes a new one.
"""

from typing import Final

import trio

from rmq.plugin import BrokerContext, Escape
from rmq.protocol.records import StoredMessage, decode_or_error
from rmq_plugins.schedule.deliver import Deliveries

LOOK_S: Final = 0.5
"""Pause between two checks of all levels."""


class ActingDeliveries:
    """Delivers on a slave, as long as it acts as the master."""

    def __init__(
        self, deliveries: Deliveries, escape: Escape, broker: BrokerContext
    ) -> None:
        self._deliveries = deliveries
        self._escape = escape
        self._clock = broker.clock
        self._failures = broker.monitor.failures
        self._term = 0

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            self._term = self._escape.term
            if self._term:
                self._deliveries.find_pending()
                for level in sorted(self._deliveries.due_ms):
                    await self.deliver(level)
            await trio.sleep(LOOK_S)

    async def deliver(self, level: int) -> None:
        """Send messages of a level until one is not due, or is not stored."""
        offsets = self._deliveries.offsets
        while True:
            records, position = self._deliveries.read(level, offsets.get(level))
            if not records:
                return
            while position < len(records):
                record, error = decode_or_error(records, position)
                now_ms = self._clock.now_ms()
                if self._deliveries.left_ms(record, level, now_ms):
                    return
                if not await self._deliver_one(record, error):
                    return
                done = record.queue_offset + 1  # the master may have done more
                offsets.set(level, max(offsets.get(level), done))
                offsets.touch()
                position += record.size

    async def _deliver_one(
        self, record: StoredMessage, error: Exception | None
    ) -> bool:
        """Send a message, or skip it; False if it must be tried again later."""
        with self._failures.skip_on_error("schedule", record):
            if error is not None:
                raise error
            message = self._deliveries.message_of(record)
            if message is None:
                return True
            is_same = self._escape.term == self._term
            return is_same and await self._escape.send(message)
        return True
