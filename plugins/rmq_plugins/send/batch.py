"""Request 320: several messages of one topic and queue in one body.

The store appends all of them, one after another, or none. The answer contains their
ids, joined with commas, and the queue offset of the first message. The properties of
the header belong to the batch and are not stored; each message has its own. A unique
key in the header's properties is the transaction id of the answer.

In a topic with queues of type BatchCQ a batch with a unique key becomes one record, an
*inner batch*. The body of the record is the body of the request, its properties come
from the header, and INNER_NUM is the number of messages. Consumers unwrap it. The
answer has the key as batchUniqId: producers then use one id for all messages.
"""

from collections.abc import Callable
from typing import Final

from rmq.plugin import (
    BrokerContext,
    Connection,
    Held,
    Later,
    PutStatus,
    RequestRejected,
)
from rmq.protocol.batch import MAX_INNER_ITEMS, BatchItem, decode_batch
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import INNER_BATCH, NEED_UNWRAP
from rmq.protocol.headers.send import SendMessageRequestHeader
from rmq.protocol.message import Message
from rmq.protocol.properties import (
    CLUSTER,
    DELAY,
    INNER_NUM,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
    decode_properties,
)
from rmq.protocol.records import offset_message_id
from rmq.protocol.topics import RETRY_PREFIX
from rmq_plugins.send.answers import SendAnswers
from rmq_plugins.send.checks import SendChecks, check_key, stored_flags
from rmq_plugins.send.store_once import StoreOnce, batch_result_of, result_of

MAX_TOPIC_LENGTH: Final = 127


class BatchHandler:
    """The batch part of Java's `SendMessageProcessor`."""

    def __init__(
        self,
        broker: BrokerContext,
        checks: SendChecks,
        answers: SendAnswers,
        once: StoreOnce,
        register_queue: Callable[[TopicConfig, int], None],
    ) -> None:
        """`register_queue` gets topic and queue of each batch that was put."""
        self._put = broker.put.put
        self._put_batch = broker.put.put_batch
        self._triggers = broker.put.triggers
        self._cluster = broker.config.broker_cluster_name
        self._checks = checks
        self._answers = answers
        self._once = once
        self._register_queue = register_queue
        self._store_host = broker.store_host
        self._max_size = broker.store_config.max_message_size

    def send(
        self, request: Command, header: SendMessageRequestHeader, connection: Connection
    ) -> Command | Held | Later:
        """Store the messages of a batch."""
        if not request.body:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "the batch has no body")
        try:
            config = self._checks.find_topic(header, connection)
            message = self._build_head(request, header, connection, config)
            if len(request.body) > self._max_size or _is_special(message):
                return self._answers.answer_not_stored(
                    request, PutStatus.MESSAGE_ILLEGAL
                )
            items = decode_batch(request.body)
            if config.is_compacted:
                for item in items:
                    check_key(decode_properties(item.properties_text))
            if config.has_batch_queues and UNIQ_KEY in message.properties:
                group = header.producer_group
                return self._send_inner(request, message, len(items), group)
            keys = self._keys_of(header.topic, items)
            first = self._once.find_batch(header.topic, keys, header.producer_group)
            if first is None:
                result = self._put_batch(message, items)
            else:
                message.queue_id = first[0].queue_id
                result = batch_result_of(first)
        except RequestRejected as refusal:
            return self._answers.answer_refused(request, refusal.code, refusal.remark)
        self._register_queue(config, message.queue_id)
        if result.status is not PutStatus.PUT_OK:
            return self._answers.answer_not_stored(request, result.status)
        assert result.physical_offsets, "a stored batch has messages"
        if first is None and keys:
            self._once.add(header.topic, keys[0], result.physical_offsets[0])
        fields = {
            "msgId": ",".join(
                [
                    offset_message_id(self._store_host, offset)
                    for offset in result.physical_offsets
                ]
            ),
            "queueId": str(message.queue_id),
            "queueOffset": str(result.queue_offset),
        }
        unique_key = message.properties.get(UNIQ_KEY)
        if unique_key is not None:
            fields["transactionId"] = unique_key
        fields |= self._answers.facts
        wait = message.properties.get(WAIT)
        return self._answers.answer_stored(request, fields, result, wait, header.topic)

    def _send_inner(
        self, request: Command, message: Message, count: int, group: str
    ) -> Command | Held | Later:
        """Store a batch as one record."""
        properties = message.properties
        if count > MAX_INNER_ITEMS or not self._triggers.isdisjoint(properties):
            return self._answers.answer_not_stored(request, PutStatus.MESSAGE_ILLEGAL)
        message.sys_flag |= NEED_UNWRAP | INNER_BATCH
        for name, value in self._answers.facts.items():
            message.set_property(name, value)
        message.set_property(CLUSTER, self._cluster)
        message.set_property(INNER_NUM, str(count))
        unique_key = properties[UNIQ_KEY]
        first = self._once.find(message.topic, unique_key, group)
        if first is None:
            result = self._put(message)
        else:
            message.queue_id, result = first.queue_id, result_of(first)
        if result.status is not PutStatus.PUT_OK:
            return self._answers.answer_not_stored(request, result.status)
        if first is None:
            self._once.add(message.topic, unique_key, result.physical_offset)
        fields = {
            "msgId": offset_message_id(self._store_host, result.physical_offset),
            "queueId": str(message.queue_id),
            "queueOffset": str(result.queue_offset),
            "transactionId": unique_key,
            "batchUniqId": unique_key,
            **self._answers.facts,
        }
        wait = properties.get(WAIT)
        return self._answers.answer_stored(request, fields, result, wait, message.topic)

    def _keys_of(self, topic: str, items: list[BatchItem]) -> list[str | None]:
        """Return the unique keys of a batch; an empty list if the topic does not store
        keys once.
        """
        if not self._once.window_ms(topic):
            return []
        properties = (decode_properties(item.properties_text) for item in items)
        return [each.get(UNIQ_KEY) for each in properties]

    def _build_head(
        self,
        request: Command,
        header: SendMessageRequestHeader,
        connection: Connection,
        config: TopicConfig,
    ) -> Message:
        """Check the batch, and return the message with the common fields."""
        if len(header.topic) > MAX_TOPIC_LENGTH:
            raise _illegal_message(f"message topic length over {MAX_TOPIC_LENGTH}")
        if header.topic.startswith(RETRY_PREFIX):
            raise _illegal_message(
                f"batch request does not support retry group {header.topic}"
            )
        properties = decode_properties(header.properties or "")
        return Message(
            header.topic,
            self._checks.choose_queue(header.queue_id, config),
            request.body,
            header.flag,
            stored_flags(header, properties, config, connection),
            header.born_timestamp,
            connection.remote_host,
            header.reconsume_times or 0,
            0,
            properties,
            header.properties,
        )


def _is_special(batch: Message) -> bool:
    """Whether the batch has a delay or a transaction, which need a single message."""
    properties = batch.properties
    return (
        properties.get(DELAY, "0") != "0"
        or properties.get(TRAN_MSG, "").lower() == "true"
    )


def _illegal_message(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.MESSAGE_ILLEGAL, remark)
