"""Headers of consumer and producer groups."""

from rmq.protocol.headers import I32, Header, RpcHeader, TopicHeader


class GetConsumerListByGroupRequestHeader(RpcHeader, kw_only=True):
    """Request 38 GET_CONSUMER_LIST_BY_GROUP."""

    consumer_group: str


class GetConsumerConnectionListRequestHeader(RpcHeader, kw_only=True):
    """Request 203 GET_CONSUMER_CONNECTION_LIST."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(RpcHeader, kw_only=True):
    """Request 204 GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class GetAllSubscriptionGroupRequestHeader(Header, kw_only=True):
    """Request 201 GET_ALL_SUBSCRIPTIONGROUP_CONFIG; no number: everything."""

    group_seq: I32 | None = None
    data_version: str | None = None
    max_group_num: I32 | None = None


class GetAllSubscriptionGroupResponseHeader(Header, kw_only=True):
    """The answer to 201 GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    total_group_num: I32


class GetSubscriptionGroupConfigRequestHeader(RpcHeader, kw_only=True):
    """Request 352 GET_SUBSCRIPTIONGROUP_CONFIG."""

    group: str


class DeleteSubscriptionGroupRequestHeader(RpcHeader, kw_only=True):
    """Request 207 DELETE_SUBSCRIPTIONGROUP; tools of 4.9 send `remove_offset`."""

    group_name: str
    clean_offset: bool = False
    remove_offset: bool | None = None


class UpdateGroupForbiddenRequestHeader(TopicHeader, kw_only=True):
    """Request 353 UPDATE_AND_GET_GROUP_FORBIDDEN."""

    group: str
    topic: str
    readable: bool | None = None


class QuerySubscriptionByConsumerRequestHeader(TopicHeader, kw_only=True):
    """Request 345 QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str
    topic: str | None = None


class QueryTopicConsumeByWhoRequestHeader(TopicHeader, kw_only=True):
    """Request 300 QUERY_TOPIC_CONSUME_BY_WHO."""

    topic: str


class QueryTopicsByConsumerRequestHeader(RpcHeader, kw_only=True):
    """Request 343 QUERY_TOPICS_BY_CONSUMER."""

    group: str


class QueryConsumeTimeSpanRequestHeader(TopicHeader, kw_only=True):
    """Request 303 QUERY_CONSUME_TIME_SPAN."""

    topic: str
    group: str
