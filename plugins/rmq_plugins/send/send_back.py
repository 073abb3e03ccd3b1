"""Request 36: a consumer sends back a message that it could not process.

Known in Java as `consumerSendMsgBack`.
The broker reads the record at its physical offset and stores it again in the retry
topic of the group. Body and flags stay the same, the number of attempts grows by one.
RETRY_TOPIC and ORIGIN_MESSAGE_ID name the first message's topic and id. The request has
the delay level of the retry; for 0 the broker chooses one, longer for each attempt.
After the last attempt, or for a negative level, the message goes to the dead-letter
topic.

The retry policy of a group has no effect here: Java's broker stores it for proxies.
"""

from collections.abc import Collection
from typing import Final

from rmq.access.actions import Action
from rmq.plugin import (
    BrokerContext,
    Connection,
    PhysicalOffset,
    PutStatus,
    RequestRejected,
)
from rmq.protocol import properties as names
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PERM_READ_WRITE, TOPIC_UNIT_SUB, is_writable
from rmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from rmq.protocol.message import Message
from rmq.protocol.records import StoredMessage
from rmq.protocol.topics import dlq_topic, retry_topic
from rmq_plugins.send.checks import find_group, retry_limit
from rmq_plugins.send.native_send_back import (
    NativeSendBack,
    choose_queue,
    retry_queue_count,
)

FIRST_LEVEL: Final = 3
"""Delay level of the first retry (10 s by default) if the consumer sets none."""


class SendBackHandler:
    """The part of Java's `AbstractSendMessageProcessor` that consumers use."""

    def __init__(self, broker: BrokerContext) -> None:
        config = broker.config
        self._broker = broker
        self._verified_message_at = broker.messages.verified_message_at
        self._put = broker.put
        self._topics = broker.topics
        self._groups = broker.groups
        self._statistics = broker.statistics
        self._name = config.broker_ip1 or broker.address
        self._config = config
        self.native: Final = NativeSendBack(broker)

    def config_changed(self, keys: Collection[str]) -> None:
        """Check the broker's permission again after it has changed."""
        if "brokerPermission" in keys:
            self.native.remove_all()

    def send_back(self, request: Command, connection: Connection) -> Command:
        """Store the message again, as a retry or as a dead letter."""
        header = request.header(ConsumerSendMsgBackRequestHeader)
        group = self._find_group(header.group)
        if group.retry_queue_nums <= 0:
            return request.reply()
        record = self._find_record(header.offset)
        self._broker.rights.require(request, connection, record.topic, Action.SUB)
        retry = self._ensure_retry_topic(header, group.retry_queue_nums)
        message = _build_retry(record)
        limit = retry_limit(group, header.max_reconsume_times, request.version)
        if record.reconsume_times >= limit or header.delay_level < 0:
            dead = dlq_topic(header.group)
            self._topics.ensure(dead, queues=1, perm=PERM_READ_WRITE)
            message.topic, message.queue_id = dead, 0
            message.set_property(names.DELAY, "0")
        else:
            level = header.delay_level or FIRST_LEVEL + record.reconsume_times
            if names.DELAY not in self._put.triggers:
                raise RequestRejected(
                    ResponseCode.SYSTEM_ERROR,
                    "no plugin serves the property DELAY, which a message that is sent "
                    "back needs: enable the plugin schedule",
                )
            message.topic = retry.topic_name or ""
            message.queue_id = choose_queue(retry_queue_count(group, retry))
            message.set_property(names.DELAY, str(level))
        assert message.reconsume_times == record.reconsume_times + 1
        status = self._put.put(message, without=names.TRAN_MSG).status
        if status is not PutStatus.PUT_OK:
            return request.reply(ResponseCode.SYSTEM_ERROR, status.name)
        topic = message.properties[names.RETRY_TOPIC]
        is_dead = message.topic == dlq_topic(header.group)
        self._statistics.count_send_back(header.group, topic, is_dead=is_dead)
        self.native.register(header.group, group, retry, record)
        return request.reply()

    def _find_group(self, name: str) -> SubscriptionGroupConfig:
        group = find_group(self._groups, name)
        if not is_writable(self._config.broker_permission):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._name}] sending message is forbidden",
            )
        return group

    def _ensure_retry_topic(
        self, header: ConsumerSendMsgBackRequestHeader, queues: int
    ) -> TopicConfig:
        name = retry_topic(header.group)
        sys_flag = TOPIC_UNIT_SUB if header.unit_mode else 0
        topic = self._topics.ensure(
            name, queues=queues, perm=PERM_READ_WRITE, sys_flag=sys_flag
        )
        if not is_writable(topic.perm):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the topic[{name}] sending message is forbidden",
            )
        return topic

    def _find_record(self, offset: int) -> StoredMessage:
        record = (
            self._verified_message_at(PhysicalOffset(offset)) if offset >= 0 else None
        )
        if record is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}"
            )
        return record


def _build_retry(record: StoredMessage) -> Message:
    """Return the message of the next attempt, without its topic, queue and delay."""
    message = record.to_message()
    message.reconsume_times += 1
    message.prepared_transaction_offset = 0
    properties = message.properties
    properties.setdefault(names.RETRY_TOPIC, record.topic)
    properties.setdefault(names.ORIGIN_MESSAGE_ID, record.offset_msg_id)
    message.set_property(names.WAIT, "false")
    return message
