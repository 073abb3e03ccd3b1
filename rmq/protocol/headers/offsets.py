"""Headers of queue offsets and of the offsets that groups committed."""

from enum import StrEnum

from rmq.protocol.headers import I32, I64, Header, RpcHeader, TopicHeader


class BoundaryType(StrEnum):
    """The first or the last message of a run with the same store time."""

    LOWER = "LOWER"
    UPPER = "UPPER"


class QueryConsumerOffsetRequestHeader(TopicHeader, kw_only=True):
    """Request 14 QUERY_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: I32
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(Header, kw_only=True):
    """The answer to 14 QUERY_CONSUMER_OFFSET."""

    offset: I64


class UpdateConsumerOffsetRequestHeader(TopicHeader, kw_only=True):
    """Request 15 UPDATE_CONSUMER_OFFSET; a missing offset is an error with its own
    code.
    """

    consumer_group: str
    topic: str
    queue_id: I32
    commit_offset: I64 | None = None


class GetMaxOffsetRequestHeader(TopicHeader, kw_only=True):
    """Request 30 GET_MAX_OFFSET."""

    topic: str
    queue_id: I32
    committed: bool = True


class GetMaxOffsetResponseHeader(Header, kw_only=True):
    """The answer to 30 GET_MAX_OFFSET."""

    offset: I64


class GetMinOffsetRequestHeader(TopicHeader, kw_only=True):
    """Request 31 GET_MIN_OFFSET."""

    topic: str
    queue_id: I32


class GetMinOffsetResponseHeader(Header, kw_only=True):
    """The answer to 31 GET_MIN_OFFSET."""

    offset: I64


class SearchOffsetRequestHeader(TopicHeader, kw_only=True):
    """Request 29 SEARCH_OFFSET_BY_TIMESTAMP."""

    topic: str
    queue_id: I32
    timestamp: I64
    boundary_type: str | None = None
    lite_topic: str | None = None

    @property
    def end_boundary(self) -> BoundaryType:
        """Which message to return of several with the same time: UPPER, or LOWER by
        default.
        """
        if self.boundary_type is not None and self.boundary_type.upper() == "UPPER":
            return BoundaryType.UPPER
        return BoundaryType.LOWER


class SearchOffsetResponseHeader(Header, kw_only=True):
    """The answer to 29 SEARCH_OFFSET_BY_TIMESTAMP."""

    offset: I64


class GetEarliestMsgStoretimeRequestHeader(TopicHeader, kw_only=True):
    """Request 32 GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: I32


class GetEarliestMsgStoretimeResponseHeader(Header, kw_only=True):
    """The answer to 32 GET_EARLIEST_MSG_STORETIME."""

    timestamp: I64


class ResetOffsetRequestHeader(TopicHeader, kw_only=True):
    """Request 220 RESET_CONSUMER_CLIENT_OFFSET, to a client, and of 222
    INVOKE_BROKER_TO_RESET_OFFSET, to the broker. Queue id -1 means all queues.
    """

    group: str
    topic: str
    queue_id: I32 = -1
    offset: I64 | None = None
    timestamp: I64 = 0
    is_force: bool = False


class QueryCorrectionOffsetHeader(TopicHeader, kw_only=True):
    """Request 308 QUERY_CORRECTION_OFFSET."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


class CloneGroupOffsetRequestHeader(RpcHeader, kw_only=True):
    """Request 314 CLONE_GROUP_OFFSET."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
