"""The checks of POP requests, in Java's order."""

from typing import Final, NamedTuple

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.flags import is_readable
from rmq.protocol.headers.pop import (
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
)
from rmq_plugins.consume.checks import MAX_MESSAGES, ConsumeChecks, check_queue_id
from rmq_plugins.consume.filters import MessageFilter, build_pop_filter

PopHeader = (
    PopMessageRequestHeader
    | NotificationRequestHeader
    | PeekMessageRequestHeader
    | PollingInfoRequestHeader
)


_PRIORITY: Final = "PRIORITY"


class PopPlan(NamedTuple):
    """Topic, group and filter of a checked request."""

    topic: TopicConfig
    group: SubscriptionGroupConfig
    filter: MessageFilter

    @property
    def priority(self) -> int:
        """The first queue of a POP is random; below this number the random draw selects
        the first queue of the topic.
        """
        if self.topic.attributes.get("message.type") != _PRIORITY:
            return 0
        text = self.group.attributes.get("priority.factor", "100")
        return int(text) if text.isdecimal() and len(text) < 4 else 100


class PopChecks(ConsumeChecks):
    """The checks of a POP that need the broker's tables."""

    def __init__(self, broker: BrokerContext) -> None:
        super().__init__(broker)
        self._store_config = broker.store_config

    def plan_pop(
        self, header: PopMessageRequestHeader, connection: Connection
    ) -> PopPlan:
        """Return the plan of a POP, or refuse it."""
        self._check_broker()
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
        """Return the plan of a notification, a peek or a query, or refuse it."""
        self._check_broker()
        return self._plan(header, connection, *expression)

    def _check_broker(self) -> None:
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
        topic = self._find_readable_topic(header, connection)
        name = header.consumer_group
        group = self.find_group(name, connection)
        if not group.consume_enable:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}"
            )
        return PopPlan(topic, group, build_pop_filter(expression, kind))

    def _find_readable_topic(
        self, header: PopHeader, connection: Connection
    ) -> TopicConfig:
        name = header.topic
        topic = self.find_topic(name)
        if not is_readable(topic.perm):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the topic[{name}] peeking message is forbidden",
            )
        if header.queue_id >= 0:
            check_queue_id(header.queue_id, topic, connection)
        return topic


def _invalid(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.INVALID_PARAMETER, remark)
