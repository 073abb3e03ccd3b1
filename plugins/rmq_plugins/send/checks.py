"""The checks of a send before it is stored, in Java's order.

The names in the topic table are valid: an ordinary send costs one look-up. Only if the
table lacks the topic, its name is validated and the topic created.

A send that the store cannot write is refused here, and not after a wait as by Java's
`BrokerFastFailure`; `rmq/remoting/overload.py` has the limits of waiting requests.
"""

import random
from collections.abc import Mapping
from typing import Final

from rmq.plugin import BrokerContext, Connection, Groups, RequestRejected
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.statistics import SNDBCK2DLQ_TIMES
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import FAQ, ResponseCode
from rmq.protocol.flags import (
    CLIENT_FLAGS,
    INNER_BATCH,
    MULTI_TAGS,
    PERM_READ_WRITE,
    PERM_WRITE,
    TRANSACTION_PREPARED,
    born_host_flag,
)
from rmq.protocol.headers.send import SendMessageRequestHeader
from rmq.protocol.message import Message
from rmq.protocol.properties import DELAY, KEYS, RETRY_TOPIC, TRAN_MSG
from rmq.protocol.topics import (
    RETRY_PREFIX,
    dlq_topic,
    is_lmq,
    is_sendable,
    validate_topic,
)

MAX_RECONSUME_TIMES_SINCE: Final = 121
"""First client version (3.4.9) whose field maxReconsumeTimes is the limit of
retries.
"""

_NEVER_QUEUED: Final = TRANSACTION_PREPARED | INNER_BATCH
"""Properties of records that get no queue entry when queues are built from the log."""

_RETRY_QUEUES: Final = 1
_DLQ_QUEUES: Final = 1


class SendChecks:
    """The checks of a send that need the broker's tables."""

    def __init__(self, broker: BrokerContext) -> None:
        self._topics = broker.topics
        self._groups = broker.groups
        self._queue_locks = broker.queue_locks
        self._statistics = broker.statistics
        self._durability = broker.durability
        self._clock = broker.clock
        config = broker.config
        self._name = config.broker_ip1 or broker.address
        self._config = config
        self._queues = broker.queues
        self._most_lmq = broker.store_config.max_lmq_count
        self._accept_from_ms = config.start_accept_send_request_time_stamp

    def find_topic(
        self, header: SendMessageRequestHeader, connection: Connection
    ) -> TopicConfig:
        """Find or create the topic, or refuse the send."""
        if not self._durability.is_writable:
            raise RequestRejected(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"service not available now. {self._durability.refuse_reason}",
            )
        if self._accept_from_ms and self._clock.now_ms() < self._accept_from_ms:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {self._accept_from_ms}",
            )
        name = header.topic
        config = self._topics.get(name)
        if (
            config is not None
            and config.order
            and not self._config.broker_permission & PERM_WRITE
        ):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._name}] sending message is forbidden",
            )
        if config is None:
            validate_topic(name)
        if not is_sendable(name):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"Sending message to topic[{name}] is forbidden.",
            )
        if config is None:
            config = self._create_topic(header, connection)
        elif is_lmq(name):
            self._check_lmq(name)
        if header.queue_id >= config.write_queue_nums:
            _check_queue_id(header.queue_id, config, connection)
        return config

    def _check_lmq(self, name: str) -> None:
        """Refuse a new light message queue beyond the limit, and sends to a lite topic.

        A message reaches a lite topic only by its property `__LITE_TOPIC`.
        """
        validate_topic(name)
        queues, most = self._queues, self._most_lmq
        if queues.lmq_count >= most and queues.get(name, 0) is None:
            raise RequestRejected(
                ResponseCode.LMQ_QUOTA_EXCEEDED,
                "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]lmq consume queue num exceeded.",
            )

    def choose_queue(self, wanted: int, config: TopicConfig) -> int:
        """Return the queue to write; for a negative id choose one at random."""
        if wanted >= 0:
            return wanted
        if config.write_queue_nums <= 0:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"topic[{config.topic_name}] has no queue to write to",
            )
        return random.randrange(config.write_queue_nums)

    def divert_retry(
        self, message: Message, header: SendMessageRequestHeader, version: int
    ) -> None:
        """Move a retry after the last attempt to the group's dead-letter topic."""
        group = message.topic.removeprefix(RETRY_PREFIX)
        settings = find_group(self._groups, group)
        limit = retry_limit(settings, header.max_reconsume_times, version)
        if message.reconsume_times > limit or self._queue_locks.is_orderly(group):
            origin = message.properties.get(RETRY_TOPIC, message.topic)
            self._statistics.count(SNDBCK2DLQ_TIMES, f"{origin}@{group}")
            self._move_to_dead_letters(message, dlq_topic(group))

    def _move_to_dead_letters(self, message: Message, topic: str) -> None:
        """Set the dead-letter topic as the address of a message, without a delay."""
        self._topics.ensure(topic, queues=_DLQ_QUEUES, perm=PERM_READ_WRITE)
        message.topic = topic
        message.queue_id = 0
        message.remove_property(DELAY)

    def _create_topic(
        self, header: SendMessageRequestHeader, connection: Connection
    ) -> TopicConfig:
        """Create the topic from the default topic, or as a retry topic."""
        config = self._topics.create_for_send(
            header.topic,
            header.default_topic,
            header.default_topic_queue_nums,
            connection.remote_address,
        )
        if config is None and header.topic.startswith(RETRY_PREFIX):
            config = self._topics.ensure(
                header.topic, queues=_RETRY_QUEUES, perm=PERM_READ_WRITE
            )
        if config is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!{FAQ}",
            )
        return config


def find_group(groups: Groups, name: str) -> SubscriptionGroupConfig:
    """Return the group of a retry."""
    group = groups.find(name)
    if group is None:
        raise RequestRejected(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group not exist, {name} {FAQ}",
        )
    return group


def retry_limit(
    group: SubscriptionGroupConfig, max_reconsume_times: int | None, version: int
) -> int:
    """Return the limit of retries: the client's limit, or the group's if the client
    sent none.
    """
    if max_reconsume_times is not None and version >= MAX_RECONSUME_TIMES_SINCE:
        return max_reconsume_times
    return group.retry_max_times


def added_flags(config: TopicConfig) -> int:
    """Return the flags that a topic adds to its messages."""
    return MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0


def stored_flags(
    header: SendMessageRequestHeader,
    properties: Mapping[str, str],
    config: TopicConfig,
    connection: Connection,
) -> int:
    """Return the sender's flags with the flags that the broker sets."""
    if header.sys_flag & _NEVER_QUEUED:
        _check_flags(header.sys_flag, properties)
    flags = header.sys_flag & CLIENT_FLAGS | added_flags(config)
    return flags | born_host_flag(connection.remote_host)


def _check_flags(sys_flag: int, properties: Mapping[str, str]) -> None:
    """Refuse messages that the broker would acknowledge but never deliver.

    A half message has the flag and the property TRAN_MSG; the property decides.
    """
    if sys_flag & INNER_BATCH:
        raise _illegal_flags(sys_flag, "an inner batch, which only request 320 creates")
    if properties.get(TRAN_MSG, "").lower() != "true":
        raise _illegal_flags(
            sys_flag, "part of a transaction, without the property TRAN_MSG"
        )


def _illegal_flags(sys_flag: int, what: str) -> RequestRejected:
    return RequestRejected(
        ResponseCode.MESSAGE_ILLEGAL,
        f"sysFlag {sys_flag:#x} marks the message as {what}: send the message without "
        "this flag",
    )


def _check_queue_id(queue_id: int, config: TopicConfig, connection: Connection) -> None:
    if queue_id < max(config.write_queue_nums, config.read_queue_nums):
        return
    raise RequestRejected(
        ResponseCode.INVALID_PARAMETER,
        f"request queueId[{queue_id}] is illegal, TopicConfig "
        f"[topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={config.perm}] "
        f"Producer: {connection.remote_address}",
    )


def check_key(properties: Mapping[str, str]) -> None:
    """Refuse a message without a key, which a compaction topic could not keep."""
    if not properties.get(KEYS, "").strip():
        raise RequestRejected(
            ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing"
        )
