"""The checks of POP requests, in Java's order."""

from typing import Final, NamedTuple

from rmq.plugin import (
    BrokerContext,
    Connection,
    Predicate,
    RequestRejected,
    SelectorError,
    compile_selector,
    is_tag_type,
    tag_codes,
)
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import FAQ, ResponseCode
from rmq.protocol.flags import is_readable
from rmq.protocol.headers.pop import (
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
)

MAX_MESSAGES: Final = 32
_SQL92: Final = "SQL92"

PopHeader = (
    PopMessageRequestHeader
    | NotificationRequestHeader
    | PeekMessageRequestHeader
    | PollingInfoRequestHeader
)


class PopFilter(NamedTuple):
    """Tag codes and a predicate; None takes everything."""

    tag_codes: tuple[int, ...] | None = None
    predicate: Predicate | None = None


class PopPlan(NamedTuple):
    """What a request may read."""

    topic: TopicConfig
    group: SubscriptionGroupConfig
    filter: PopFilter


class PopChecks:
    """The checks that need the broker's tables."""

    def __init__(self, broker: BrokerContext) -> None:
        self._config = broker.config
        self._store_config = broker.store_config
        self._topics = broker.topics
        self._groups = broker.groups
        self._unserved = broker.store.unserved_topics
        self._name = broker.config.broker_ip1 or broker.address

    def plan_pop(
        self, header: PopMessageRequestHeader, connection: Connection
    ) -> PopPlan:
        """Return what a POP may read, or reject it."""
        self._check_broker("consumer")
        if header.max_msg_nums > MAX_MESSAGES:
            raise _invalid(
                f"the broker[{self._name}] pop message's num is greater than "
                f"{MAX_MESSAGES}"
            )
        if header.max_msg_nums < 1 or header.invisible_time <= 0:
            raise _invalid(
                "maxMsgNums and invisibleTime must be greater than 0, they are "
                f"{header.max_msg_nums} and {header.invisible_time}"
            )
        if not self._store_config.timer_wheel_enable:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"the broker[{self._name}] pop message is forbidden because "
                "timerWheelEnable is false",
            )
        return self._plan(header, connection, header.exp, header.exp_type)

    def plan_query(
        self,
        header: PopHeader,
        connection: Connection,
        expression: tuple[str | None, str | None] = (None, None),
    ) -> PopPlan:
        """Return what a notification, a peek or a question about both may read."""
        self._check_broker("consumer")
        return self._plan(header, connection, *expression)

    def _check_broker(self, who: str) -> None:
        if not is_readable(self._config.broker_permission):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._name}] peeking message is forbidden",
            )

    def _plan(
        self,
        header: PopHeader,
        connection: Connection,
        expression: str | None,
        kind: str | None,
    ) -> PopPlan:
        topic = self._find_topic(header, connection)
        name = header.consumer_group
        group = self._groups.find(name, connection.remote_address)
        if group is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {name}",
            )
        return PopPlan(topic, group, self._build_filter(expression, kind))

    def _find_topic(self, header: PopHeader, connection: Connection) -> TopicConfig:
        name = header.topic
        topic = self._topics.get(name)
        if topic is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please! {FAQ}",
            )
        if not is_readable(topic.perm):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the topic[{name}] peeking message is forbidden",
            )
        if name in self._unserved:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"the topic[{name}] is not served: {self._unserved[name]}",
            )
        if header.queue_id >= topic.read_queue_nums:
            raise _invalid(
                f"queueId[{header.queue_id}] is illegal, topic:[{name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
                f"consumer:[{connection.remote_address}]"
            )
        return topic

    def _build_filter(self, expression: str | None, kind: str | None) -> PopFilter:
        if not expression or is_tag_type(kind):
            return PopFilter(tag_codes(expression) if expression else None)
        if kind != _SQL92:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: there is no type {kind}",
            )
        try:
            return PopFilter(predicate=compile_selector(expression))
        except SelectorError as error:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {error.remark}",
            ) from error


def _invalid(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.INVALID_PARAMETER, remark)
