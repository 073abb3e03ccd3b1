"""Headers of looking up messages by key, id and queue entry."""

from rmq.protocol.headers import I32, I64, Header, TopicHeader


class QueryMessageRequestHeader(TopicHeader, kw_only=True):
    """Request 12 QUERY_MESSAGE."""

    topic: str
    key: str
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    index_type: str | None = None
    last_key: str | None = None


class QueryMessageResponseHeader(Header, kw_only=True):
    """The answer to 12 QUERY_MESSAGE."""

    index_last_update_timestamp: I64
    index_last_update_phyoffset: I64


class ViewMessageRequestHeader(Header, kw_only=True):
    """Request 33 VIEW_MESSAGE_BY_ID."""

    topic: str | None = None
    offset: I64


class QueryConsumeQueueRequestHeader(TopicHeader, kw_only=True):
    """Request 321 QUERY_CONSUME_QUEUE."""

    topic: str | None = None
    queue_id: I32 = 0
    index: I64 = 0
    count: I32 = 0
    consumer_group: str | None = None
