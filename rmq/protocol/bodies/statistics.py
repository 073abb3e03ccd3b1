"""Bodies of statistics, and about queues and replicas, for tools."""

from typing import Final

from msgspec import field

from rmq.protocol.bodies import Body
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.bodies.groups import ConsumeStats
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.headers import I32, I64

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
QUEUE_PUT_NUMS: Final = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE: Final = "QUEUE_PUT_SIZE"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
QUEUE_GET_NUMS: Final = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE: Final = "QUEUE_GET_SIZE"
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"
BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC: Final = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"
BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC: Final = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"
SNDBCK_PUT_NUMS: Final = "SNDBCK_PUT_NUMS"
SNDBCK2DLQ_TIMES: Final = "SNDBCK2DLQ_TIMES"
COMMIT_NUMS: Final = "COMMIT_NUMS"
ROLLBACK_NUMS: Final = "ROLLBACK_NUMS"
"""Names of items, as request 315 and tools have them."""


class BrokerStatsItem(Body, kw_only=True):
    """A sum over a window, its rate per second and its mean per addition."""

    sum: I64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body, kw_only=True):
    """Answer to 315: one item over three windows."""

    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)


class ConsumeStatsList(Body, kw_only=True):
    """Answer to 317: the progress of every group; one object per group."""

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(
        default_factory=list
    )
    total_diff: I64 = 0
    total_inflight_diff: I64 = 0


class QueueTimeSpan(Body, kw_only=True):
    """Store times of a queue and the position of a group in them, ms since 1970.

    The texts repeat the times, `2026-11-21#03:01:54:226`.
    """

    message_queue: MessageQueue
    min_time_stamp: I64 = 0
    max_time_stamp: I64 = 0
    consume_time_stamp: I64 = 0
    delay_time: I64 = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(Body, kw_only=True):
    """Answer to 303: one span for each queue."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


class QueryCorrectionOffsetBody(Body, kw_only=True):
    """Answer to 308: the smallest offset of other groups, by queue id."""

    correction_offsets: dict[int, I64] = field(default_factory=dict)


class ConsumeQueueData(Body, kw_only=True):
    """One entry of a queue; `eval`: whether it matches the group's filter."""

    physic_offset: I64 = 0
    physic_size: I32 = 0
    tags_code: I64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body, kw_only=True):
    """Answer to 321: entries of a queue, and the filter that a group has on it."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    max_queue_index: I64 = 0
    min_queue_index: I64 = 0


class GroupForbidden(Body, kw_only=True):
    """Answer to 353: whether a group may read a topic."""

    group: str | None = None
    topic: str | None = None
    readable: bool = True


class HAClientRuntimeInfo(Body, kw_only=True):
    """The connection of a slave to its master; all fields are zero on a master."""

    last_read_timestamp: I64 = 0
    last_write_timestamp: I64 = 0
    master_addr: str | None = None
    master_flush_offset: I64 = 0
    max_offset: I64 = 0
    not_following: str = ""
    """Only in rmq: the reason why the slave does not follow; empty while it follows."""

    transferred_byte_in_second: I64 = 0


class HAConnectionRuntimeInfo(Body, kw_only=True):
    """A replica as its master sees it."""

    addr: str | None = None
    diff: I64 = 0
    in_sync: bool = False
    slave_ack_offset: I64 = 0
    transfer_from_where: I64 = 0
    transferred_byte_in_second: I64 = 0


class HARuntimeInfo(Body, kw_only=True):
    """Answer to 907: the state of replication."""

    master: bool = True
    master_commit_log_max_offset: I64 = 0
    in_sync_slave_nums: I32 = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo = field(
        default_factory=HAClientRuntimeInfo
    )
    refusals: list[str] = field(default_factory=list)
    """Only in rmq: reasons why peers were not served; Java's tools do not read this
    field.
    """
