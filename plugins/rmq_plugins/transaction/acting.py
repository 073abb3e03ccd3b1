"""ActingChecks: an acting master sends open half messages to other groups.

The other group checks the transaction: it asks a producer for the result. The progress
is an offset of the group CID_RMQ_SYS_TRANS. A master that comes back takes this offset,
so it does not check these transactions again.
"""

from typing import Final

import trio

from rmq.plugin import BrokerContext, Escape
from rmq.protocol import properties as names
from rmq.protocol.flags import TRANSACTION_MASK, TRANSACTION_PREPARED
from rmq.protocol.message import Message
from rmq.protocol.records import StoredMessage
from rmq_plugins.transaction.half_log import HalfLog

LOOK_S: Final = 0.5
"""Pause between two searches in the half queue."""


class ActingChecks:
    """Sends half messages from a slave, as long as it acts as the master."""

    def __init__(self, broker: BrokerContext, escape: Escape) -> None:
        self._broker = broker
        self._escape = escape
        self._failures = broker.monitor.failures
        self._next_turn = broker.next_turn
        self._term = 0

    async def run(self) -> None:
        """Send until cancelled."""
        log: HalfLog | None = None
        while True:
            term = self._escape.term
            if term != self._term:
                self._term, log = term, None
            if term:
                if log is None:  # the master has continued since the last time
                    self._broker.statistics.open_transactions.clear()
                    log = HalfLog(self._broker)
                await self.send_open(log)
            await trio.sleep(LOOK_S)

    async def send_open(self, log: HalfLog) -> None:
        """Send the open half messages until one cannot be sent."""
        first = log.progress
        while await self._send_next(log):
            await self._next_turn()
        if log.progress != first:
            log.save_progress()

    async def _send_next(self, log: HalfLog) -> bool:
        """Send or skip the half message at the progress; False if there is none."""
        is_found, record = log.find_open()
        if record is None:
            return is_found
        with self._failures.skip_on_error("transaction", record):
            if not await self._send_half(record):
                return False
        log.advance()
        return True

    async def _send_half(self, record: StoredMessage) -> bool:
        """Send a half message to its own topic at another group, which keeps it."""
        if self._escape.term != self._term:
            return False
        message = message_of(record)
        return message is None or await self._escape.send(message)


def message_of(half: StoredMessage) -> Message | None:
    """Return a half message as its producer sent it; None without a topic."""
    message = half.to_message()
    topic = message.properties.get(names.REAL_TOPIC)
    if not topic:
        return None
    message.topic, message.queue_id = topic, 0
    for name in (names.TRAN_PREPARED_QUEUE_OFFSET, names.REAL_TOPIC, names.REAL_QID):
        message.remove_property(name)
    message.set_property(names.TRAN_MSG, "true")
    message.sys_flag = message.sys_flag & ~TRANSACTION_MASK | TRANSACTION_PREPARED
    return message
