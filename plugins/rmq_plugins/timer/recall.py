"""Request 370: recall a timed message by the handle in the answer to its send.

Handle: URL-safe Base64 of `v1 <topic> <broker> <out time + 1> <unique key>`. The recall
is a timed message for the same slot. When the slot is due, the plugin reads the recalls
first. So a recall with answer code 0 has no effect if the delivery of its slot has
begun. The broker logs recalls that may come too late, and counts recalls that came too
late.
"""

import logging
from typing import Final

from rmq.plugin import (
    BrokerContext,
    Connection,
    Foreign,
    Held,
    PutStatus,
    RequestRejected,
)
from rmq.protocol import properties as names
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PERM_WRITE, born_host_flag
from rmq.protocol.handles import RecallHandle
from rmq.protocol.headers.send import (
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
)
from rmq.protocol.message import Message

logger = logging.getLogger(__name__)

RECALL_TAG: Final = "_RECALL_TAG_"


class RecallHandler:
    """Known in Java as `RecallMessageProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._config = broker.config
        self._store_config = broker.store_config
        self._durability = broker.durability
        self._topics = broker.topics
        self._clock = broker.clock
        self._timer = broker.timer
        self._put = broker.put.put
        self._trace = {names.MSG_REGION: broker.config.region_id}

    def recall(self, request: Command, connection: Connection) -> Command | Held:
        """Store the recall."""
        try:
            header = request.header(RecallMessageRequestHeader)
            handle = self._check_request(header)
            result = self._put(self._build_message(header, handle, connection))
        except RequestRejected as refusal:
            return request.reply(refusal.code, refusal.remark, ext_fields=self._trace)
        if result.status is not PutStatus.PUT_OK:
            logger.warning("a recall was not stored: %s", result.status.name)
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                "recall failed, execute error",
                ext_fields=self._trace,
            )
        slot = (handle.due_ms - 1) // self._timer.precision_ms
        if slot <= self._timer.read_slot:
            logger.info("a recall of %s may come too late", Foreign(handle.topic))
        answer = request.reply(
            header=RecallMessageResponseHeader(msg_id=handle.unique_key),
            remark="not set any response code",
            ext_fields=self._trace,
        )
        if not self._durability.senders_wait:
            return answer
        timeout_ms = self._durability.ack_timeout_ms
        return Held(answer, result.end_offset, None, timeout_ms)

    def _check_request(self, header: RecallMessageRequestHeader) -> RecallHandle:
        """Return the handle of a valid request; the checks are in Java's order."""
        config = self._config
        if not config.recall_message_enable:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden"
            )
        not_available = "recall failed, broker service not available"
        accept_from_ms = config.start_accept_send_request_time_stamp
        is_writable = bool(config.broker_permission & PERM_WRITE)
        if (accept_from_ms and self._clock.now_ms() < accept_from_ms) or not (
            is_writable or config.recall_when_not_writable
        ):
            raise RequestRejected(ResponseCode.SERVICE_NOT_AVAILABLE, not_available)
        if self._topics.get(header.topic) is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST,
                f"recall failed, the topic[{header.topic}] not exist",
            )
        handle = RecallHandle.decode(header.recall_handle)
        if handle is None:
            raise _illegal_operation("recall handle is invalid")
        if handle.topic != header.topic:
            raise _illegal_operation("recall failed, topic not match")
        if handle.broker != config.broker_name:
            raise _illegal_operation(not_available)
        left_ms = handle.due_ms - self._clock.now_ms()
        if not 0 < left_ms < self._store_config.timer_max_delay_s * 1_000:
            raise _illegal_operation("recall failed, timestamp invalid")
        return handle

    def _build_message(
        self,
        header: RecallMessageRequestHeader,
        handle: RecallHandle,
        connection: Connection,
    ) -> Message:
        now_ms = self._clock.now_ms()
        key = handle.unique_key
        if self._config.append_topic_for_timer_delete_key:
            key = f"{handle.topic}+{key}"
        properties = {
            names.TIMER_DEL_UNIQKEY: key,
            names.UNIQ_KEY: handle.unique_key,
            names.TAGS: RECALL_TAG,
            names.TIMER_DELIVER_MS: str(handle.due_ms),
            names.BORN_TIMESTAMP: str(now_ms),
            names.TRACE_CONTEXT: "",
        }
        if header.producer_group:
            properties[names.PRODUCER_GROUP] = header.producer_group
        host = connection.remote_host
        flags = born_host_flag(host)
        return Message(
            handle.topic, 0, b"0", 0, flags, now_ms, host, properties=properties
        )


def _illegal_operation(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.ILLEGAL_OPERATION, remark)
