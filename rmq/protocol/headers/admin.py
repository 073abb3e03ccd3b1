"""Headers of topics, settings and statistics of a broker."""

from rmq.protocol.headers import I32, Header, TopicHeader


class CreateTopicRequestHeader(TopicHeader, kw_only=True):
    """Request 17 UPDATE_AND_CREATE_TOPIC and 513 UPDATE_AND_CREATE_STATIC_TOPIC."""

    topic: str
    default_topic: str
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: str
    topic_sys_flag: I32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class DeleteTopicRequestHeader(TopicHeader, kw_only=True):
    """Request 215 DELETE_TOPIC_IN_BROKER."""

    topic: str


class GetAllTopicConfigRequestHeader(Header, kw_only=True):
    """Request 21 GET_ALL_TOPIC_CONFIG; without a number it asks for everything."""

    topic_seq: I32 | None = None
    data_version: str | None = None
    max_topic_num: I32 | None = None


class GetAllTopicConfigResponseHeader(Header, kw_only=True):
    """The answer to 21 GET_ALL_TOPIC_CONFIG."""

    total_topic_num: I32 | None = None


class GetTopicConfigRequestHeader(TopicHeader, kw_only=True):
    """Request 351 GET_TOPIC_CONFIG."""

    topic: str


class GetTopicStatsInfoRequestHeader(TopicHeader, kw_only=True):
    """Request 202 GET_TOPIC_STATS_INFO."""

    topic: str


class GetBrokerConfigResponseHeader(Header, kw_only=True):
    """The answer to 26 GET_BROKER_CONFIG."""

    version: str


class ViewBrokerStatsDataRequestHeader(Header, kw_only=True):
    """Request 315 VIEW_BROKER_STATS_DATA."""

    stats_name: str
    stats_key: str


class GetConsumeStatsRequestHeader(TopicHeader, kw_only=True):
    """Request 208 GET_CONSUME_STATS."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumeStatsInBrokerHeader(Header, kw_only=True):
    """Request 317 GET_BROKER_CONSUME_STATS."""

    is_order: bool = False
