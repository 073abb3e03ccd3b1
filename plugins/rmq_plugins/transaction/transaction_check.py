"""The check: asks a producer of the group for the result of an open transaction.

Known in Java as `TransactionalMessageCheckService`. Every `transactionCheckInterval`
the service reads the half queue from its progress on. It discards half messages after
`transactionCheckMax` checks, and half messages that are older than `fileReservedTime`.
Other half messages that are old enough are stored again at the end of the queue, so
that the progress can advance. Then the service sends request 39 with the offsets of the
new record to a producer. Only a sent request counts as a check. Within its immunity
time a half message is stored again without a check.

Without open transactions the service sleeps until the next half message.
"""

import logging
import random
from typing import Final

import trio
from msgspec.structs import replace

from rmq.access.actions import Action
from rmq.plugin import (
    BrokerContext,
    Connection,
    Foreign,
    Member,
    TurnTaker,
)
from rmq.protocol import properties as names
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from rmq.protocol.records import StoredMessage, encode_stored
from rmq.protocol.topics import TRANS_HALF_TOPIC
from rmq_plugins.transaction.half_log import HalfLog

logger = logging.getLogger(__name__)

CLOCK_TOLERANCE_MS: Final = 2_000
"""Time by which the birth of a half message may be in the future; for a later birth, a
clock was set.
"""

MAX_SILENT_GROUPS: Final = 100
MAX_GROUP_LENGTH: Final = 255
"""Maximum characters of a group's name in the facts: senders write names of any length.
"""

_HOUR_MS: Final = 3_600_000


class Checker:
    """Known in Java as `TransactionalMessageServiceImpl`."""

    def __init__(self, broker: BrokerContext, log: HalfLog) -> None:
        config = broker.config
        self._broker = broker
        self.log = log
        self._producers = broker.producers
        self._failures = broker.monitor.failures
        self._arrivals = broker.arrivals
        self._clock = broker.clock
        self._next_turn = broker.next_turn
        self._broker_name = config.broker_name
        self._config = config
        self._members: dict[str, list[tuple[Connection, Member]]] = {}
        """The producers of groups, for the checks of one round."""

        self._unreachable: set[tuple[str, str]] = set()
        """Groups and topics for which no producer is online, in this turn."""

        self._silent_groups: set[str] = set()
        self.silent_groups: list[str] = []
        """Groups of the last round with open transactions and no producer online."""

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            if not self.log.has_pending:
                self.log.woken = trio.Event()
                await self.log.woken.wait()
            await trio.sleep(self._config.transaction_check_interval_ms / 1_000)
            await self.check_round()

    async def check_round(self) -> None:
        """Walk the half queue once, in turns."""
        end_offset = self.log.end_offset
        self._silent_groups.clear()
        turns = TurnTaker(self._end_turn)
        while self.check_next(end_offset):
            await turns()
        await self._end_turn()
        self._members.clear()  # else closed connections would stay until the next round
        self.silent_groups = sorted(self._silent_groups)

    async def _end_turn(self) -> None:
        """Save the progress, and let other tasks run."""
        self._unreachable.clear()
        self.log.save_progress()
        self._arrivals.flush()
        await self._next_turn()

    def check_next(self, end_offset: int) -> bool:
        """Examine a half message; False if it and all later messages are too young.

        A half message that waits for its bytes ends the round, too.
        """
        is_found, record = self.log.find_open()
        if record is None:
            return is_found
        with self._failures.skip_on_error("transaction", record):
            if record.queue_offset >= end_offset or not self._check_half(record):
                return False
        self.log.advance()
        return True

    def _check_half(self, record: StoredMessage) -> bool:
        """Discard, postpone or check a half message; False if it is too young or the
        store refuses it.
        """
        properties = record.properties
        age_ms = self._clock.now_ms() - record.born_timestamp
        times = _parse_number(properties.get(names.TRANSACTION_CHECK_TIMES))
        if (
            times >= self._config.transaction_check_max
            or age_ms > self._config.file_reserved_time_h * _HOUR_MS
        ):
            logger.warning(
                "discarded a transaction of %s after %d checks",
                Foreign(properties.get(names.PRODUCER_GROUP)),
                times,
            )
            return self.log.discard_half(record)
        immunity = properties.get(names.CHECK_IMMUNITY_TIME_IN_SECONDS)
        if immunity is None:
            if -CLOCK_TOLERANCE_MS <= age_ms <= self._config.transaction_time_out_ms:
                return False
        elif -CLOCK_TOLERANCE_MS <= age_ms <= _parse_number(immunity) * 1_000:
            return self.log.renew_half(record, times) is not None
        group = properties.get(names.PRODUCER_GROUP, "")
        producer = self._choose_producer(group, properties.get(names.REAL_TOPIC, ""))
        if producer is None:
            if len(self._silent_groups) < MAX_SILENT_GROUPS:
                self._silent_groups.add(group[:MAX_GROUP_LENGTH])
            return self.log.renew_half(record, times) is not None
        renewed = self.log.renew_half(record, times + 1)
        if renewed is None:
            return False
        producer.send_nowait(self._build_request(renewed))
        return True

    def _choose_producer(self, group: str, topic: str) -> Connection | None:
        """Choose an online producer of the group that may see messages of the topic."""
        if (group, topic) in self._unreachable:
            return None
        members = self._members.get(group)
        if members is None:
            members = self._members[group] = [*self._producers.members(group).items()]
        first = random.randrange(len(members)) if members else 0
        for connection, member in (*members[first:], *members[:first]):
            if connection.is_open and self._broker.rights.is_allowed(
                member.user, connection, topic, Action.PUB
            ):
                return connection
        self._unreachable.add((group, topic))
        del self._members[group]
        return None

    def _build_request(self, half: StoredMessage) -> Command:
        """Build request 39; its body is the half message with its real topic and
        queue.
        """
        assert half.topic == TRANS_HALF_TOPIC, f"a check of {half.topic}"
        properties = half.properties
        key = properties.get(names.UNIQ_KEY)
        header = CheckTransactionStateRequestHeader(
            topic=TRANS_HALF_TOPIC,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            msg_id=key,
            transaction_id=key,
            offset_msg_id=half.offset_msg_id,
            bname=self._broker_name,
        )
        body = encode_stored(
            replace(
                half,
                topic=properties.get(names.REAL_TOPIC, ""),
                queue_id=_parse_number(properties.get(names.REAL_QID)),
            )
        )
        return Command.request(
            RequestCode.CHECK_TRANSACTION_STATE, header, body, oneway=True
        )


def _parse_number(text: str | None) -> int:
    """Return the number in a property, 0 if it is no number."""
    return int(text[:9]) if text and text.isdecimal() else 0
