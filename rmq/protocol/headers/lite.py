"""Headers of lite topics: POPs, and the questions of tools."""

from msgspec import field

from rmq.protocol.headers import I32, I64, Header, RpcHeader


class PopLiteMessageRequestHeader(RpcHeader, kw_only=True):
    """Request 200070 POP_LITE_MESSAGE: the new messages in the client's lite topics."""

    client_id: str
    consumer_group: str
    topic: str
    max_msg_num: I32
    invisible_time: I64
    poll_time: I64
    born_time: I64
    attempt_id: str | None = None


class PopLiteMessageResponseHeader(Header, kw_only=True):
    """The answer to 200070; the info has one count for each message, separated by
    `;`.
    """

    pop_time: I64 = 0
    invisible_time: I64 = 0
    revive_qid: I32 = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class NotifyUnsubscribeLiteRequestHeader(RpcHeader, kw_only=True):
    """Request 200073 NOTIFY_UNSUBSCRIBE_LITE, to a client that was evicted."""

    lite_topic: str
    consumer_group: str
    client_id: str


class GetParentTopicInfoRequestHeader(Header, kw_only=True):
    """Request 200075 GET_PARENT_TOPIC_INFO."""

    topic: str


class GetLiteTopicInfoRequestHeader(Header, kw_only=True):
    """Request 200076 GET_LITE_TOPIC_INFO."""

    parent_topic: str | None = None
    lite_topic: str | None = None


class GetLiteClientInfoRequestHeader(Header, kw_only=True):
    """Request 200077 GET_LITE_CLIENT_INFO."""

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    max_count: I32 = 1_000


class GetLiteGroupInfoRequestHeader(Header, kw_only=True):
    """Request 200078 GET_LITE_GROUP_INFO."""

    group: str
    lite_topic: str | None = None
    top_k: I32 = field(default=0, name="topK")


class TriggerLiteDispatchRequestHeader(Header, kw_only=True):
    """Request 200079 TRIGGER_LITE_DISPATCH."""

    group: str
    client_id: str | None = None
