"""Bodies about topics: configuration and offsets."""

from typing import Any, Final

from msgspec import field

from rmq.protocol.bodies import Body
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.queue_mapping import TopicQueueMappingDetail
from rmq.protocol.headers import I32, I64

QUEUE_TYPE: Final = "queue.type"
BATCH_QUEUES: Final = "BatchCQ"
ONCE_WINDOW: Final = "rmq.once.window.ms"
"""Time in which a key is stored once; an attribute of rmq that Java ignores."""
CLEANUP_POLICY: Final = "cleanup.policy"
COMPACTION: Final = "COMPACTION"


class TopicConfig(Body, kw_only=True, gc=False):
    """The configuration of a topic on one broker.

    The garbage collector does not track configurations, because they have no cycles and
    a table may have 100,000 of them.
    """

    topic_name: str | None = None
    read_queue_nums: I32 = 16
    write_queue_nums: I32 = 16
    perm: I32 = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: I32 = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def has_batch_queues(self) -> bool:
        """Whether the queues of the topic are of type BatchCQ."""
        return self.attributes.get(QUEUE_TYPE) == BATCH_QUEUES

    @property
    def is_compacted(self) -> bool:
        """Whether only the last message of each key stays."""
        return self.attributes.get(CLEANUP_POLICY) == COMPACTION


class TopicConfigAndQueueMapping(TopicConfig, kw_only=True):
    """Answer to 351: the layout, and the mapping of a static topic."""

    mapping_detail: TopicQueueMappingDetail | None = None


class CreateTopicListRequestBody(Body, kw_only=True):
    """Request 18: topics to create or change together."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


class TopicConfigSerializeWrapper(Body, kw_only=True):
    """The table of topics as `topics.json` and old registrations hold it."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper, kw_only=True):
    """The table of topics with the mappings of static topics, or with registrations of
    mappings, as brokers sent them.
    """

    mapping_data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = field(
        default_factory=dict
    )
    topic_queue_mapping_info_map: dict[str, Any] = field(default_factory=dict)


class TopicOffset(Body, kw_only=True):
    """First and end offset of one queue, and the time of its last message."""

    min_offset: I64 = 0
    max_offset: I64 = 0
    last_update_timestamp: I64 = 0


class TopicStatsTable(Body, kw_only=True):
    """Answer to 202: the offsets of all queues of a topic."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0
