"""Bodies about single queues: locks, assignment, offsets."""

from msgspec import field

from rmq.protocol.bodies import Body
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.headers import I32, I64


class LockBatchRequestBody(Body, kw_only=True):
    """Request 41: queues to lock for an orderly consumer."""

    consumer_group: str | None = None
    client_id: str | None = None
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = field(default_factory=list)


class UnlockBatchRequestBody(LockBatchRequestBody, kw_only=True):
    """Request 42: queues to unlock."""


class LockBatchResponseBody(Body, kw_only=True):
    """Answer to 41: the queues that the client holds now."""

    locked: list[MessageQueue] = field(default_factory=list, name="lockOKMQSet")


class QueryAssignmentRequestBody(Body, kw_only=True):
    """Request 400: a client asks for its queues."""

    topic: str | None = None
    consumer_group: str | None = None
    client_id: str | None = None
    strategy_name: str | None = None
    message_model: str | None = None


class MessageQueueAssignment(Body, kw_only=True):
    """A queue and how to consume it; queue id -1 with POP means all queues."""

    message_queue: MessageQueue
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


class QueryAssignmentResponseBody(Body, kw_only=True):
    """Answer to 400; without a list, the broker assigns no queues."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class SetMessageRequestModeRequestBody(Body, kw_only=True):
    """Request 401: let a group pull or pop a topic."""

    topic: str | None = None
    consumer_group: str | None = None
    mode: str = "PULL"
    pop_share_queue_num: I32 = 0


class MessageRequestModeSerializeWrapper(Body, kw_only=True):
    """Answer to 402 and content of `messageRequestMode.json`."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = (
        field(default_factory=dict)
    )


class ConsumerOffsetSerializeWrapper(Body, kw_only=True):
    """Answer to 43 and content of `consumerOffset.json`; names are `topic@group`."""

    data_version: DataVersion = field(default_factory=DataVersion)
    group_topic_map: dict[str, list[str]] = field(default_factory=dict)
    offset_table: dict[str, dict[int, I64]] = field(default_factory=dict)
    pull_offset_table: dict[str, dict[int, I64]] = field(default_factory=dict)


class LmqOffsetSerializeWrapper(ConsumerOffsetSerializeWrapper, kw_only=True):
    """ConsumerOffsetSerializeWrapper with `enableLmq`: groups of light message queues
    have one offset.
    """

    lmq_offset_table: dict[str, I64] = field(default_factory=dict)

    def all_offsets(self) -> dict[str, dict[int, int]]:
        """Return offsets by `topic@group` and queue, which is 0 for LMQ groups."""
        only = {key: {0: offset} for key, offset in self.lmq_offset_table.items()}
        return {**self.offset_table, **only}


class GetConsumerStatusBody(Body, kw_only=True):
    """Answer to 221 (offsets of one client) and to 223 (offsets of each client)."""

    message_queue_table: dict[MessageQueue, I64] = field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, I64]] = field(default_factory=dict)


class QueueOffset(Body, kw_only=True):
    """A queue and its offset, for clients whose JSON has no objects as keys."""

    topic: str
    broker_name: str
    queue_id: I32
    offset: I64


class ResetOffsetBodyForC(Body, kw_only=True):
    """The push 220 to clients in C and C++."""

    offset_table: list[QueueOffset] = field(default_factory=list)


class ResetOffsetBody(Body, kw_only=True):
    """Answer to 222, and the push 220 to clients: the offsets to continue at."""

    offset_table: dict[MessageQueue, I64] = field(default_factory=dict)
