"""Headers of pulling messages."""

from rmq.protocol.headers import I32, I64, Header, TopicHeader
from rmq.protocol.topics import lite_queue


class PullMessageRequestHeader(TopicHeader, kw_only=True):
    """Request 11 PULL_MESSAGE and 361 LITE_PULL_MESSAGE."""

    consumer_group: str
    topic: str
    queue_id: I32
    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64
    suspend_timeout_millis: I64
    subscription: str | None = None
    sub_version: I64
    expression_type: str | None = None
    max_msg_bytes: I32 | None = None
    request_source: I32 | None = None
    proxy_froward_client_id: str | None = None
    lite_topic: str | None = None

    @property
    def read_topic(self) -> str:
        """The topic whose queue is read: the lite topic, if there is one."""
        lite = self.lite_topic or ""
        return lite_queue(self.topic, lite) if lite.strip() else self.topic


class PullMessageResponseHeader(Header, kw_only=True):
    """The answer to 11 PULL_MESSAGE and 361 LITE_PULL_MESSAGE."""

    suggest_which_broker_id: I64
    next_begin_offset: I64
    min_offset: I64
    max_offset: I64
    offset_delta: I64 | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None
    forbidden_type: I32 | None = None
