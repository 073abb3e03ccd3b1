"""Headers of consuming by POP."""

from rmq.protocol.headers import I32, I64, Header, TopicHeader


class PopMessageRequestHeader(TopicHeader, kw_only=True):
    """Request 200050 POP_MESSAGE; queue -1 is any queue."""

    consumer_group: str
    topic: str
    queue_id: I32
    max_msg_nums: I32
    invisible_time: I64
    poll_time: I64
    born_time: I64
    init_mode: I32
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponseHeader(Header, kw_only=True):
    """Fields of the answers to 200050 and 200052.

    The infos are `flag queue start`, `flag queue offset,offset…` and `flag queue n`,
    each joined by `;`.
    """

    pop_time: I64
    invisible_time: I64
    revive_qid: I32
    rest_num: I64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequestHeader(TopicHeader, kw_only=True):
    """Request 200051 ACK_MESSAGE."""

    consumer_group: str
    topic: str
    queue_id: I32
    extra_info: str
    offset: I64
    lite_topic: str | None = None


class ChangeInvisibleTimeRequestHeader(AckMessageRequestHeader, kw_only=True):
    """Request 200053 CHANGE_MESSAGE_INVISIBLETIME."""

    invisible_time: I64
    suspend: bool = False


class ChangeInvisibleTimeResponseHeader(Header, kw_only=True):
    """The answer to 200053."""

    pop_time: I64
    invisible_time: I64
    revive_qid: I32


class NotificationRequestHeader(TopicHeader, kw_only=True):
    """Request 200054 NOTIFICATION."""

    consumer_group: str
    topic: str
    queue_id: I32
    poll_time: I64
    born_time: I64
    order: bool = False
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponseHeader(Header, kw_only=True):
    """The answer to 200054."""

    has_msg: bool = False
    polling_full: bool = False


class PeekMessageRequestHeader(TopicHeader, kw_only=True):
    """Request 200052 PEEK_MESSAGE."""

    topic: str
    queue_id: I32
    max_msg_nums: I32
    consumer_group: str


class PollingInfoRequestHeader(TopicHeader, kw_only=True):
    """Request 200055 POLLING_INFO."""

    consumer_group: str
    topic: str
    queue_id: I32


class PollingInfoResponseHeader(Header, kw_only=True):
    """The answer to 200055: the number of POPs that wait."""

    polling_num: I32
