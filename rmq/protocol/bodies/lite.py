"""Bodies of lite topics: subscriptions, and the answers to tools."""

from msgspec import field

from rmq.protocol.bodies import Body
from rmq.protocol.bodies.groups import OffsetWrapper
from rmq.protocol.bodies.topics import TopicOffset
from rmq.protocol.headers import I32, I64


class OffsetOption(Body, kw_only=True):
    """The position at which a group begins a lite topic.

    POLICY with 0 (its offset), 1 (the first message) or 2 (the end), OFFSET, TAIL_N (a
    number of messages before the end), TIMESTAMP (without effect).
    """

    type: str | None = None
    value: I64 = 0


class LiteSubscription(Body, kw_only=True):
    """A change of the lite topics of a client. Known in Java as `LiteSubscriptionDTO`.

    Actions: PARTIAL_ADD, PARTIAL_REMOVE, COMPLETE_ADD (replace all subscriptions by
    these), COMPLETE_REMOVE.
    """

    action: str | None = None
    client_id: str | None = None
    group: str | None = None
    topic: str | None = None
    lite_topic_set: list[str] = field(default_factory=list)
    offset_option: OffsetOption | None = None
    version: I64 = 0


class LiteSubscriptionCtlRequestBody(Body, kw_only=True):
    """Request 200071 LITE_SUBSCRIPTION_CTL."""

    subscription_set: list[LiteSubscription] = field(default_factory=list)


class GetBrokerLiteInfoResponseBody(Body, kw_only=True):
    """Answer to 200074; the maps have minutes of expiration and groups by topic."""

    store_type: str | None = None
    max_lmq_num: I32 = 0
    current_lmq_num: I32 = 0
    lite_subscription_count: I32 = 0
    order_info_count: I32 = 0
    cq_table_size: I32 = 0
    offset_table_size: I32 = 0
    event_map_size: I32 = 0
    topic_meta: dict[str, I32] = field(default_factory=dict)
    group_meta: dict[str, list[str]] = field(default_factory=dict)


class GetParentTopicInfoResponseBody(Body, kw_only=True):
    """Answer to 200075; `ttl` in minutes, -1 without one."""

    topic: str | None = None
    ttl: I32 = 0
    groups: list[str] | None = None
    lmq_num: I32 = 0
    lite_topic_count: I32 = 0


class ClientGroup(Body, kw_only=True):
    """A subscriber; the client is `*` for a group that receives every lite topic."""

    client_id: str | None = None
    group: str | None = None


class GetLiteTopicInfoResponseBody(Body, kw_only=True):
    """Answer to 200076."""

    parent_topic: str | None = None
    lite_topic: str | None = None
    subscriber: list[ClientGroup] = field(default_factory=list)
    topic_offset: TopicOffset | None = None
    sharding_to_broker: bool = False


class GetLiteClientInfoResponseBody(Body, kw_only=True):
    """Answer to 200077; a client without subscriptions has the count -1 and no set."""

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    last_access_time: I64 = 0
    last_consume_time: I64 = 0
    lite_topic_count: I32 = 0
    lite_topic_set: list[str] | None = None


class LiteLagInfo(Body, kw_only=True):
    """The lag of a group in one lite topic."""

    lite_topic: str | None = None
    lag_count: I64 = 0
    earliest_unconsumed_timestamp: I64 = -1


class GetLiteGroupInfoResponseBody(Body, kw_only=True):
    """Answer to 200078, about one lite topic or the topics with the largest lag."""

    group: str | None = None
    parent_topic: str | None = None
    lite_topic: str | None = None
    earliest_unconsumed_timestamp: I64 = -1
    total_lag_count: I64 = 0
    lite_topic_offset_wrapper: OffsetWrapper | None = None
    lag_count_top_k: list[LiteLagInfo] | None = field(default=None, name="lagCountTopK")
    lag_timestamp_top_k: list[LiteLagInfo] | None = field(
        default=None, name="lagTimestampTopK"
    )
