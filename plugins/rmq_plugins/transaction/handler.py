"""Requests 37 and 323: end a transaction; check a discarded one again.

A producer sends 37, usually oneway, after its local transaction or after a check; an
operator sends 323. The broker never answers type 0, "unknown". The first end counts: a
later commit or rollback changes nothing. The answer to a later end is 0, or 1 when the
broker no longer has the transaction. A transaction that is checked again is a new one:
the ids of the old half message cannot end it.
"""

from typing import Final

from rmq.access.actions import Action
from rmq.plugin import BrokerContext, Connection, Held, PutStatus, RequestRejected
from rmq.protocol import properties as names
from rmq.protocol.bodies.statistics import COMMIT_NUMS, ROLLBACK_NUMS
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NONE,
    TRANSACTION_ROLLBACK,
)
from rmq.protocol.headers.transaction import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from rmq.protocol.message import Message
from rmq.protocol.records import StoredMessage, offset_of_message_id
from rmq.protocol.topics import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    is_sendable,
    validate_topic,
)
from rmq_plugins.transaction.half_log import HalfLog
from rmq_plugins.transaction.native import NativeEnds

_NOT_FOUND: Final = "Find prepared transaction message failed"
_ILLEGAL: Final = (
    ResponseCode.MESSAGE_ILLEGAL,
    "the message is illegal, maybe msg body or properties length not matched",
)
_REFUSALS: Final = {
    PutStatus.MESSAGE_ILLEGAL: _ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: _ILLEGAL,
    PutStatus.CREATE_MAPPED_FILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed",
    ),
    PutStatus.SERVICE_NOT_AVAILABLE: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now.",
    ),
    PutStatus.OS_PAGE_CACHE_BUSY: (
        ResponseCode.SYSTEM_ERROR,
        "OS page cache busy, please try another machine",
    ),
}


class TransactionHandler:
    """Known in Java as `EndTransactionProcessor`."""

    def __init__(self, broker: BrokerContext, log: HalfLog, native: NativeEnds) -> None:
        self._broker = broker
        self._native = native
        self._log = log
        self._producers = broker.producers
        self._put = broker.put.put
        self._topics = broker.topics
        self._clock = broker.clock
        self._durability = broker.durability
        self._statistics = broker.statistics

    def end_transaction(
        self, request: Command, connection: Connection
    ) -> Command | Held | None:
        """Commit or roll back."""
        header = request.header(EndTransactionRequestHeader)
        if header.commit_or_rollback == TRANSACTION_NONE:
            return None
        if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            raise _system_error(
                f"EndTransactionRequestHeader: {header.commit_or_rollback} is not an "
                "end, commitOrRollback field wrong"
            )
        record = self._find_half(header, request, connection)
        live = self._log.live_offset(record)
        if live in self._log.ops:
            return request.reply()
        if self._log.is_forgotten(live):
            raise _system_error(_NOT_FOUND)
        if header.commit_or_rollback == TRANSACTION_COMMIT:
            return self._commit(request, record, live)
        if not self._log.ops.write_end(live):
            raise _refuse_put(PutStatus.SERVICE_NOT_AVAILABLE)
        self._count_end(ROLLBACK_NUMS, record)
        return request.reply()

    def resume_check(self, request: Command, connection: Connection) -> Command:
        """Store a discarded half message again in the queue that is checked."""
        header = request.header(ResumeCheckHalfMessageRequestHeader)
        offset = offset_of_message_id(header.msg_id)
        record = None if offset is None else self._log.discarded_at(offset)
        if record is None:
            raise _system_error(
                f"{header.msg_id} is no message of {TRANS_CHECK_MAX_TIME_TOPIC}, the "
                "topic of discarded transactions"
            )
        self._require_right(request, connection, record, Action.UPDATE)
        status = self._log.resume_half(record)
        if status is not PutStatus.PUT_OK:
            raise _refuse_put(status)
        return request.reply()

    def _require_right(
        self,
        request: Command,
        connection: Connection,
        record: StoredMessage,
        action: Action,
    ) -> None:
        """Refuse a user without the right to the topic of the half message."""
        topic = record.properties.get(names.REAL_TOPIC, "")
        self._broker.rights.require(request, connection, topic, action)

    def _find_half(
        self,
        header: EndTransactionRequestHeader,
        request: Command,
        connection: Connection,
    ) -> StoredMessage:
        """Find the half message; check that the header fits and the user may end it."""
        record = self._log.half_at(header.commit_log_offset)
        if record is None:
            raise _system_error(_NOT_FOUND)
        self._require_right(request, connection, record, Action.PUB)
        user = self._broker.rights.user_of(request)
        self._producers.check_group(user, header.producer_group)
        properties = record.properties
        immunity = properties.get(names.CHECK_IMMUNITY_TIME_IN_SECONDS, "")
        if not header.from_transaction_check and immunity.isdecimal():
            age_ms = self._clock.now_ms() - record.born_timestamp
            if age_ms > int(immunity[:9]) * 1_000:
                raise RequestRejected(ResponseCode.ILLEGAL_OPERATION, "")
        if properties.get(names.PRODUCER_GROUP) != header.producer_group:
            raise _system_error("The producer group wrong")
        if record.queue_offset != header.tran_state_table_offset:
            raise _system_error("The transaction state table offset wrong")
        return record

    def _commit(
        self, request: Command, record: StoredMessage, live: int
    ) -> Command | Held | None:
        result = self._put(self._build_message(record), without=names.TRAN_MSG)
        if result.status is not PutStatus.PUT_OK:
            raise _refuse_put(result.status)
        assert result.end_offset > record.physical_offset, (
            "a commit comes after its half message"
        )
        self._log.ops.record_end(live)
        self._native.register_queue(record)
        topic = self._count_end(COMMIT_NUMS, record)
        age_ms = result.store_ms - record.born_timestamp
        self._statistics.commit_ages.add(age_ms // 1_000, topic=topic)
        if request.is_oneway:
            return None
        answer = request.reply()
        if not self._durability.senders_wait:
            return answer
        timeout_ms = self._durability.ack_timeout_ms
        return Held(answer, result.end_offset, None, timeout_ms)

    def _count_end(self, name: str, half: StoredMessage) -> str:
        """Count the end of a transaction; return its topic."""
        topic = half.properties.get(names.REAL_TOPIC, "")
        self._log.count_end(topic)
        self._statistics.count(name, topic)
        return topic

    def _build_message(self, record: StoredMessage) -> Message:
        """Build the message that consumers get."""
        message = record.to_message()
        topic = message.remove_property(names.REAL_TOPIC) or ""
        queue_id = message.remove_property(names.REAL_QID) or ""
        message.remove_property(names.TRAN_PREPARED_QUEUE_OFFSET)
        if self._topics.get(topic) is None:
            validate_topic(topic)
        if not is_sendable(topic):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"Sending message to topic[{topic}] is forbidden.",
            )
        if not queue_id.isdecimal():
            raise _system_error(f"the half message has REAL_QID {queue_id!r}")
        message.topic, message.queue_id = topic, int(queue_id[:9])
        self._topics.restore(topic, message.queue_id)
        message.sys_flag = message.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
        message.prepared_transaction_offset = record.physical_offset
        return message


def _refuse_put(status: PutStatus) -> RequestRejected:
    default = ResponseCode.SYSTEM_ERROR, status.name
    return RequestRejected(*_REFUSALS.get(status, default))


def _system_error(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
