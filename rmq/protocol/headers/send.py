"""Headers of sending, sending back and answering."""

from collections.abc import Mapping
from typing import Final

import msgspec

from rmq.protocol.codes import RequestCode
from rmq.protocol.headers import I32, I64, Header, RpcHeader, TopicHeader


class SendMessageRequestHeader(Header, kw_only=True):
    """Requests 10 SEND_MESSAGE and 324 SEND_REPLY_MESSAGE.

    Queue id -1 lets the broker choose. The fields of a namespace are useless to a
    broker and are not read, because this header is decoded for every message.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: I32 | None = None
    batch: bool | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")


class SendMessageRequestHeaderV2(SendMessageRequestHeader, kw_only=True):
    """Requests 310, 320 and 325: the same header under names of one letter."""

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: I32 = msgspec.field(name="d")
    queue_id: I32 = msgspec.field(name="e")
    sys_flag: I32 = msgspec.field(name="f")
    born_timestamp: I64 = msgspec.field(name="g")
    flag: I32 = msgspec.field(name="h")
    properties: str | None = msgspec.field(default=None, name="i")
    reconsume_times: I32 | None = msgspec.field(default=None, name="j")
    unit_mode: bool | None = msgspec.field(default=None, name="k")
    max_reconsume_times: I32 | None = msgspec.field(default=None, name="l")
    batch: bool | None = msgspec.field(default=None, name="m")
    broker_name: str | None = msgspec.field(default=None, name="n")


_LONG_NAMES: Final = (
    int(RequestCode.SEND_MESSAGE),
    int(RequestCode.SEND_REPLY_MESSAGE),
)


def decode_send_header(
    code: int, ext_fields: Mapping[str, str]
) -> SendMessageRequestHeader:
    """Read the header of any send request in the form of its code."""
    kind: type[SendMessageRequestHeader] = SendMessageRequestHeaderV2
    if code in _LONG_NAMES:
        kind = SendMessageRequestHeader
    return kind.decode(ext_fields)


class ConsumerSendMsgBackRequestHeader(RpcHeader, kw_only=True):
    """Request 36 CONSUMER_SEND_MSG_BACK."""

    offset: I64
    group: str
    delay_level: I32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None


class ReplyMessageRequestHeader(TopicHeader, kw_only=True):
    """Request 326 PUSH_REPLY_MESSAGE_TO_CLIENT."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: I64 = 0


class SendMessageResponseHeader(Header, kw_only=True):
    """The answer to every kind of send.

    `msg_id` of a batch joins the ids of all its messages with commas; `queue_offset` is
    the queue offset of the first message.
    """

    msg_id: str
    queue_id: I32
    queue_offset: I64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class RecallMessageRequestHeader(TopicHeader, kw_only=True):
    """Request 370 RECALL_MESSAGE."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponseHeader(Header, kw_only=True):
    """The answer to 370 RECALL_MESSAGE."""

    msg_id: str
