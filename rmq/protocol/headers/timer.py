"""Headers of timed messages."""

from rmq.protocol.headers import Header, TopicHeader


class RecallMessageRequestHeader(TopicHeader, kw_only=True):
    """Of request 370 RECALL_MESSAGE."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageResponseHeader(Header, kw_only=True):
    """Of the answer to 370 RECALL_MESSAGE."""

    msg_id: str
