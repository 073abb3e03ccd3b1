"""Bodies about consumer groups: configuration and progress."""

from msgspec import field

from rmq.protocol.bodies import Body
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.headers import I32, I64


class ExponentialRetryPolicy(Body, kw_only=True):
    """Delays that grow by a factor, in milliseconds."""

    initial: I64 = 5_000
    max: I64 = 7_200_000
    multiplier: I64 = 2


class CustomizedRetryPolicy(Body, kw_only=True):
    """Delays one after another, in milliseconds."""

    next: list[I64] = field(default_factory=list)


class GroupRetryPolicy(Body, kw_only=True, gc=False):
    """The delays before a message that was not consumed is delivered again."""

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(Body, kw_only=True):
    """A subscription that is part of a group's configuration."""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: I64 = 0


class SubscriptionGroupConfig(Body, kw_only=True, gc=False):
    """How a broker treats a consumer group."""

    group_name: str | None = None
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: I32 = 1
    retry_max_times: I32 = 16
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    broker_id: I64 = 0
    which_broker_when_consume_slowly: I64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: I32 = 0
    consume_timeout_minute: I32 = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = field(default_factory=dict)


class SubscriptionGroupWrapper(Body, kw_only=True):
    """Answer to 201 and content of `subscriptionGroup.json`."""

    data_version: DataVersion = field(default_factory=DataVersion)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(
        default_factory=dict
    )
    forbidden_table: dict[str, dict[str, I32]] = field(default_factory=dict)


class SubscriptionGroupList(Body, kw_only=True):
    """Request 225: groups to create or change together."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


class OffsetWrapper(Body, kw_only=True):
    """The offsets of a group in one queue, for its lag."""

    broker_offset: I64 = 0
    consumer_offset: I64 = 0
    pull_offset: I64 = 0
    last_timestamp: I64 = 0


class ConsumeStats(Body, kw_only=True):
    """Answer to 208: the progress of a group."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


class QuerySubscriptionResponseBody(Body, kw_only=True):
    """Answer to 345: the subscription of a group to a topic."""

    group: str | None = None
    topic: str | None = None
    subscription_data: SubscriptionData | None = None
