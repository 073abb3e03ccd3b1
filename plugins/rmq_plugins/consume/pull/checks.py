"""The checks of a pull before the store reads, in Java's order."""

from typing import Final, NamedTuple

from rmq.plugin import BrokerContext, Connection, RequestRejected, is_tag_type
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.heartbeat import ConsumeType
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import FAQ, RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PULL_SUBSCRIPTION, is_readable
from rmq.protocol.headers.pull import PullMessageRequestHeader
from rmq.protocol.topics import is_retry_topic
from rmq_plugins.consume.checks import ConsumeChecks, check_queue_id
from rmq_plugins.consume.filters import MessageFilter, build_filter, select_retries

PULLING_GROUPS: Final = frozenset(
    {"DEFAULT_CONSUMER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER"}
    | {"__MONITOR_CONSUMER", "SELF_TEST_C_GROUP"}
)
"""Groups that may pull with `rejectPullConsumerEnable`, as in Java."""

FORBIDDEN_BROKER: Final = 1
FORBIDDEN_GROUP: Final = 2
FORBIDDEN_TOPIC: Final = 3
FORBIDDEN_BROADCAST: Final = 4
FORBIDDEN_SUBSCRIPTION: Final = 5


class PullForbidden(RequestRejected):
    """The refusal of a pull without permission; the answer names the kind."""

    def __init__(self, forbidden_type: int, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.forbidden_type = forbidden_type


class PullPlan(NamedTuple):
    """The filter of a checked pull, and the flags for its answer."""

    filter: MessageFilter
    topic_sys_flag: int
    group_sys_flag: int
    slow_broker_id: int = 0
    """The broker from which a group with a long lag reads, if that broker serves."""


class PullChecks(ConsumeChecks):
    """The checks of a pull that need the broker's tables."""

    def __init__(self, broker: BrokerContext) -> None:
        super().__init__(broker)
        self._consumers = broker.consumers
        self._filters = broker.filters

    def plan(
        self, request: Command, header: PullMessageRequestHeader, connection: Connection
    ) -> PullPlan:
        """Return the plan of a pull, or refuse it."""
        self._check_broker(request)
        group = self._find_enabled_group(header.consumer_group, connection)
        topic = self._find_readable_topic(header, connection)
        if header.sys_flag & PULL_SUBSCRIPTION:
            wanted = self._build_filter(header.subscription, header.expression_type)
        else:
            wanted = self._find_registered_filter(header, group)
        if self._config.filter_support_retry and is_retry_topic(header.topic):
            select = select_retries(header.topic, self._filters)
            wanted = wanted._replace(predicate=select, selector=None)
        if self._config.reject_pull_consumer_enable:
            self._check_member(header.consumer_group, connection)
        return PullPlan(
            wanted,
            topic.topic_sys_flag,
            group.group_sys_flag,
            group.which_broker_when_consume_slowly,
        )

    def _check_broker(self, request: Command) -> None:
        if not is_readable(self._config.broker_permission):
            raise PullForbidden(
                FORBIDDEN_BROKER,
                f"the broker[{self._name}] pulling message is forbidden",
            )
        if (
            request.code == RequestCode.LITE_PULL_MESSAGE
            and not self._config.lite_pull_message_enable
        ):
            raise PullForbidden(
                FORBIDDEN_BROKER,
                f"the broker[{self._name}] for lite pull consumer is forbidden",
            )

    def _find_enabled_group(
        self, name: str, connection: Connection
    ) -> SubscriptionGroupConfig:
        group = self.find_group(name, connection)
        if not group.consume_enable:
            raise PullForbidden(
                FORBIDDEN_GROUP, f"subscription group no permission, {name}"
            )
        return group

    def _find_readable_topic(
        self, header: PullMessageRequestHeader, connection: Connection
    ) -> TopicConfig:
        name = header.topic
        topic = self.find_topic(name)
        if not is_readable(topic.perm):
            raise PullForbidden(
                FORBIDDEN_TOPIC, f"the topic[{name}] pulling message is forbidden"
            )
        check_queue_id(header.queue_id, topic, connection)
        return topic

    def _check_member(self, name: str, connection: Connection) -> None:
        """Refuse a client without heartbeats, unless its group consumes passively."""
        group = self._consumers.group(name)
        if group is None:
            is_wanted = name in PULLING_GROUPS
        else:
            is_wanted = (
                group.consume_type != ConsumeType.CONSUME_ACTIVELY
                or connection in group.members
                or name in PULLING_GROUPS
            )
        if not is_wanted:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                "the consumer's group info not exist, or the pull consumer is rejected "
                f"by server.{FAQ}",
            )

    def _find_registered_filter(
        self, header: PullMessageRequestHeader, settings: SubscriptionGroupConfig
    ) -> MessageFilter:
        """Return the filter of the subscription in the group's heartbeats.

        A client may pull with a newer expression before its heartbeat arrives. The
        broker then does not filter tags, because the client filters them again.
        """
        name, topic = header.consumer_group, header.topic
        group = self._consumers.group(name)
        if group is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist{FAQ}",
            )
        if group.message_model == "BROADCASTING" and not (
            settings.consume_broadcast_enable
        ):
            raise PullForbidden(
                FORBIDDEN_BROADCAST,
                f"the consumer group[{name}] can not consume by broadcast way",
            )
        if self._groups.is_forbidden(name, topic):
            raise PullForbidden(
                FORBIDDEN_SUBSCRIPTION,
                f"the consumer group[{name}] is forbidden for topic[{topic}]",
            )
        subscription = self._consumers.subscription(name, topic)
        if subscription is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist{FAQ}",
            )
        if subscription.sub_version >= header.sub_version:
            if not is_tag_type(subscription.expression_type):
                self._check_selector(header)
            return self._build_filter(
                subscription.sub_string, subscription.expression_type
            )
        if is_tag_type(subscription.expression_type):
            return MessageFilter()
        raise RequestRejected(
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            "the consumer's subscription not latest",
        )

    def _check_selector(self, header: PullMessageRequestHeader) -> None:
        """Refuse a pull whose selector is invalid or newer than the registered one."""
        selector = self._filters.get(header.topic, header.consumer_group)
        if selector is None:
            raise RequestRejected(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be "
                "wrong!",
            )
        if selector.client_version < header.sub_version:
            raise RequestRejected(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                "the consumer's consumer filter data not latest",
            )

    def _build_filter(self, expression: str | None, kind: str | None) -> MessageFilter:
        return build_filter(
            expression, kind, allows_sql=self._config.enable_property_filter
        )
