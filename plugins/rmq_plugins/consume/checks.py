"""Checks that pulls, POPs and acks have in common, with Java's remarks."""

from typing import Final

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import FAQ, ResponseCode
from rmq.protocol.handles import PopHandle
from rmq.protocol.headers.pop import AckMessageRequestHeader

MAX_MESSAGES: Final = 32
"""Maximum number of messages of one POP."""

MAX_INVISIBLE_MS: Final = 24 * 3_600_000
"""Maximum invisible time: a day; the timer keeps records for three days."""


class ConsumeChecks:
    """The checks that need the broker's tables."""

    def __init__(self, broker: BrokerContext) -> None:
        self._config = broker.config
        self._topics = broker.topics
        self._groups = broker.groups
        self._name = broker.config.broker_ip1 or broker.address

    def find_topic(self, name: str) -> TopicConfig:
        """Return a topic that exists."""
        topic = self._topics.get(name)
        if topic is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please! {FAQ}",
            )
        return topic

    def find_group(self, name: str, connection: Connection) -> SubscriptionGroupConfig:
        """Return a group that exists, or that the broker may create."""
        group = self._groups.find(name, connection.remote_address)
        if group is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] does not exist, {FAQ}",
            )
        return group

    def check_ack(
        self, header: AckMessageRequestHeader, connection: Connection
    ) -> None:
        """Refuse an ack of a topic or a queue that does not exist."""
        topic = self.find_topic(header.topic)
        code = ResponseCode.MESSAGE_ILLEGAL
        check_queue_id(header.queue_id, topic, connection, code)


def check_queue_id(
    queue_id: int,
    topic: TopicConfig,
    connection: Connection,
    code: ResponseCode = ResponseCode.INVALID_PARAMETER,
) -> None:
    """Refuse the id of a queue that the topic does not have."""
    if not 0 <= queue_id < topic.read_queue_nums:
        raise RequestRejected(
            code,
            f"queueId[{queue_id}] is illegal, topic:[{topic.topic_name}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
            f"consumer:[{connection.remote_address}]",
        )


def check_invisible_time(invisible_ms: int) -> None:
    """Refuse a new invisible time that is negative or too long."""
    if not 0 <= invisible_ms <= MAX_INVISIBLE_MS:
        raise RequestRejected(
            ResponseCode.INVALID_PARAMETER,
            f"invisibleTime {invisible_ms} is not within 0 and {MAX_INVISIBLE_MS}",
        )


def decode_handle(text: str) -> PopHandle:
    """Return the receipt handle of an ack."""
    handle = PopHandle.decode(text)
    if handle is None:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR,
            "extraInfo is not a receipt handle: a handle is start, time, invisible "
            "time, revive queue, flag and broker, joined by spaces",
        )
    return handle
