"""Results of puts and gets; the names are Java's, because they appear on the wire."""

import enum
from typing import NamedTuple

import msgspec

from rmq.core.offsets import PhysicalOffset, QueueOffset


class PutStatus(enum.Enum):
    """Result of a put."""

    PUT_OK = enum.auto()
    SERVICE_NOT_AVAILABLE = enum.auto()
    CREATE_MAPPED_FILE_FAILED = enum.auto()
    MESSAGE_ILLEGAL = enum.auto()
    PROPERTIES_SIZE_EXCEEDED = enum.auto()
    OS_PAGE_CACHE_BUSY = enum.auto()
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = enum.auto()


class GetStatus(enum.Enum):
    """Result of a get; its name is the remark of the answer."""

    FOUND = enum.auto()
    NO_MATCHED_MESSAGE = enum.auto()
    MESSAGE_WAS_REMOVING = enum.auto()
    OFFSET_OVERFLOW_BADLY = enum.auto()
    OFFSET_OVERFLOW_ONE = enum.auto()
    OFFSET_TOO_SMALL = enum.auto()
    NO_MESSAGE_IN_QUEUE = enum.auto()
    OFFSET_RESET = enum.auto()


class PutResult(msgspec.Struct, frozen=True, gc=False):
    """The offsets of a stored message; 0 if the status is not PUT_OK.

    A waiting sender is answered when the log is durable up to `end_offset`.
    """

    status: PutStatus
    queue_offset: QueueOffset = QueueOffset(0)
    physical_offset: PhysicalOffset = PhysicalOffset(0)
    end_offset: PhysicalOffset = PhysicalOffset(0)
    store_ms: int = 0


class BatchPutResult(NamedTuple):
    """The offsets of a stored batch; `queue_offset` is its first message's offset."""

    status: PutStatus
    queue_offset: QueueOffset = QueueOffset(0)
    physical_offsets: tuple[PhysicalOffset, ...] = ()
    end_offset: PhysicalOffset = PhysicalOffset(0)
    store_ms: int = 0


class GetResult(NamedTuple):
    """Messages from a queue, or the reason why there are none; `body` has the records
    as stored.
    """

    status: GetStatus
    next_begin_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    message_count: int = 0
    body: bytes = b""
    is_far_behind: bool = False


class Boundary(enum.Enum):
    """The message before or after a time that a search returns."""

    LOWER = "LOWER"
    UPPER = "UPPER"
