"""Requests 10 and 310: store one message, and answer with its offsets.

The handler is a plain function on the trio thread, and stores the message before it
returns. The sends of one connection therefore keep their order. Under SYNC_FLUSH the
answer is held until the log is durable up to the message. A retried send gets the
answer of the first one, if `StoreOnce` finds its message.

The broker adds four properties to each message: MSG_REGION, TRACE_ON, CLUSTER, and
UNIQ_KEY if the producer did not set it. The handler appends these properties to the
text of the other properties, unless another property is special.
"""

from collections.abc import Collection
from typing import Final

from rmq.plugin import (
    BrokerContext,
    Connection,
    Held,
    Later,
    PutStatus,
    RequestRejected,
)
from rmq.plugin.native import UniqueKeys
from rmq.protocol import properties as names
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.send import SendMessageRequestHeader, decode_send_header
from rmq.protocol.message import Message
from rmq.protocol.properties import decode_properties, encode_properties
from rmq.protocol.records import offset_message_id
from rmq.protocol.topics import RETRY_PREFIX
from rmq_plugins.send.answers import SendAnswers
from rmq_plugins.send.batch import BatchHandler
from rmq_plugins.send.checks import SendChecks, check_key, stored_flags
from rmq_plugins.send.native import NativeSends
from rmq_plugins.send.store_once import StoreOnce, queue_of, result_of

_PUT_OK: Final = PutStatus.PUT_OK
_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
"""Request code 320 as a number, because access to an enum member costs as much as a
small call.
"""

_TIMERS: Final = (names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)
_NOT_PRIORITY: Final = (names.TRAN_MSG, names.DELAY, *_TIMERS, names.SHARDING_KEY)
"""Properties of messages of another type, whose priority has no effect."""


class SendHandler:
    """Known in Java as `SendMessageProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._put = broker.put.put
        self._triggers = broker.put.triggers
        self._topics = broker.topics
        self._fields_of = broker.put.send_fields
        self._answers = SendAnswers(broker)
        self._checks = SendChecks(broker)
        self.once: Final = StoreOnce(broker)
        self._batch = BatchHandler(
            broker, self._checks, self._answers, self.once, self._register_queue
        )
        self._keys = UniqueKeys(broker.store_host, broker.clock.now_ms)
        self._store_host = broker.store_host
        self._config = broker.config
        self._added = {
            **self._answers.facts,
            names.CLUSTER: broker.config.broker_cluster_name,
        }
        self._added_text = encode_properties(self._added)
        self._special = frozenset(
            {*self._added, *_NOT_PRIORITY, names.POP_CK, names.PRIORITY}
            | {names.INNER_NUM}
        )
        self._native: NativeSends | None = None

    def enable_native(self, broker: BrokerContext) -> NativeSends:
        """Return the compiled sends; from now on they serve plain messages."""
        if self._native is None:
            self._native = NativeSends(
                broker,
                facts=self._answers.facts,
                added=self._added_text,
                keys=self._keys,
                special_properties=self._special - {names.SHARDING_KEY},
                once=self.once,
            )
        return self._native

    def config_changed(self, keys: Collection[str]) -> None:
        """Apply new values of configuration keys."""
        self.once.config_changed()
        if self._native is not None:
            self._native.config_changed(keys)

    def send(self, request: Command, connection: Connection) -> Command | Held | Later:
        """Store one message, or a batch if the header marks one."""
        header = decode_send_header(request.code, request.ext_fields)
        if header.batch or request.code == _BATCH:
            return self._batch.send(request, header, connection)
        if not request.body:
            _check_tombstone(self._topics.get(header.topic))
        try:
            config = self._checks.find_topic(header, connection)
            message = self._build_message(request, header, connection, config)
            if config.is_compacted:
                check_key(message.properties)
            if message.properties_text is None:
                self._apply_special(message, config)
            if header.topic.startswith(RETRY_PREFIX):
                self._checks.divert_retry(message, header, request.version)
            queue_id, properties = message.queue_id, message.properties
            assert queue_id >= 0, f"no queue was chosen for {header.topic}"
            unique_key, wait = properties[names.UNIQ_KEY], properties.get(names.WAIT)
            first = self.once.find(header.topic, unique_key, header.producer_group)
            if first is None:
                result = self._put(message)
            else:
                queue_id, message = queue_of(first), first.to_message()
                result = result_of(first)
        except RequestRejected as refusal:
            return self._answers.answer_refused(request, refusal.code, refusal.remark)
        self._register_queue(config, queue_id)
        status = result.status
        if status is not _PUT_OK:
            return self._answers.answer_not_stored(request, status)
        if first is None:
            self.once.add(header.topic, unique_key, result.physical_offset)
        fields = {
            "msgId": offset_message_id(self._store_host, result.physical_offset),
            "queueId": str(queue_id),
            "queueOffset": str(result.queue_offset),
            "transactionId": unique_key,
            **self._answers.facts,
        }
        more_fields = self._fields_of.get(message.topic)
        if more_fields is not None:
            fields |= more_fields(message)
        return self._answers.answer_stored(request, fields, result, wait, header.topic)

    def _register_queue(self, config: TopicConfig, queue_id: int) -> None:
        """Let compiled sends serve this queue from now on."""
        name = config.topic_name
        assert name is not None, "a topic in the table has a name"
        if self._native is not None and self._answers.is_settled(name):
            self._native.register_queue(name, config, queue_id)

    def _build_message(
        self,
        request: Command,
        header: SendMessageRequestHeader,
        connection: Connection,
        config: TopicConfig,
    ) -> Message:
        """Return the message with the broker's own properties."""
        text = header.properties or ""
        properties = decode_properties(text)
        if text and text[-1] != "\x02":
            text += "\x02"  # Java's clients before 5.0 omit the last one
        is_plain = self._special.isdisjoint(properties) and (
            text.count("\x02") == len(properties)
        )
        if names.UNIQ_KEY not in properties:
            unique_key = properties[names.UNIQ_KEY] = self._keys.next()
            text += encode_properties({names.UNIQ_KEY: unique_key})
        properties.update(self._added)
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
            text + self._added_text if is_plain else None,
        )

    def _apply_special(self, message: Message, config: TopicConfig) -> None:
        """Apply special properties; the store then encodes all properties again."""
        if names.INNER_NUM in message.properties:
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                "INNER_NUM marks an inner batch: send the message as request 320",
            )
        self._check_served(message.properties, message.reconsume_times)
        message.remove_property(names.POP_CK)
        message.queue_id = _queue_by_priority(message, config)

    def _check_served(self, properties: dict[str, str], reconsume_times: int) -> None:
        """Refuse delayed, timed and transactional messages that no plugin handles.

        The broker would deliver them at once. A delay level has precedence over a time;
        a delayed retry is not transactional any more.
        """
        is_delayed = _delay_level(properties) > 0
        is_retry = is_delayed and reconsume_times > 0
        is_half = properties.get(names.TRAN_MSG, "").lower() == "true" and not is_retry
        if is_half and (
            self._config.reject_transaction_message
            or names.TRAN_MSG not in self._triggers
        ):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                "the broker sending transaction message is forbidden",
            )
        if is_delayed and names.DELAY not in self._triggers:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                "delayed delivery is not enabled, no plugin serves the property DELAY",
            )
        for name in _TIMERS:
            if name in properties and name not in self._triggers and not is_delayed:
                raise RequestRejected(
                    ResponseCode.SYSTEM_ERROR,
                    f"timed delivery is not enabled, no plugin serves {name}",
                )


def _check_tombstone(config: TopicConfig | None) -> None:
    """Refuse a message without a body, which removes a key of a compaction topic."""
    if config is None or not config.is_compacted:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, "the message has no body")


def _delay_level(properties: dict[str, str]) -> int:
    """Return the delay level; 0 without a valid one."""
    return _parse_integer(properties.get(names.DELAY), default=0)


def _parse_integer(text: str | None, *, default: int) -> int:
    try:
        return default if text is None else int(text)
    except ValueError:
        return default


def _queue_by_priority(message: Message, config: TopicConfig) -> int:
    """Return the queue for the message's priority; remove the property if it has no
    effect.
    """
    properties = message.properties
    priority = _parse_integer(properties.get(names.PRIORITY), default=-1)
    if priority < 0:
        return message.queue_id
    if any(name in properties for name in _NOT_PRIORITY):
        message.remove_property(names.PRIORITY)
        return message.queue_id
    return max(0, min(priority, config.write_queue_nums - 1))
