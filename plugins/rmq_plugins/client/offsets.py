"""Requests 14 and 15: the offset of a group in a queue.

After the answer QUERY_NOT_FOUND (22), a client starts at the position that its settings
name. A group without an offset gets 0 only while the first message is still in memory.
So a new group reads all messages of a young queue.
"""

from typing import Final

from rmq.plugin import BrokerContext, Connection, QueueOffset, RequestRejected
from rmq.plugin.native import CommitPath, LookupPath
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import WIRE_VERSION, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

MAX_QUEUES: Final = 65_536
"""Maximum number of queues of a topic that may have offsets: any client can commit."""

_QUEUE_ID_END: Final = 1 << 31
"""Queue ids have 32 bits; compiled code also reads longer numbers."""


class OffsetHandler:
    """Known in Java as `ConsumerManageProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._topics = broker.topics
        self._groups = broker.groups
        self._offsets = broker.offsets
        self._mappings = broker.queue_mappings
        self._messages = broker.messages
        self._is_compiled = False

    def enable_compiled(self) -> CommitPath:
        """Return the compiled handler; from now on, it gets plain commits."""
        self._is_compiled = True
        self._topics.on_change.append(self._topic_changed)
        self._groups.on_change.append(self._group_changed)
        return CommitPath(self._offsets.commit_table, WIRE_VERSION)

    def _topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        if topic is None or name in self._mappings:
            self._offsets.commit_table.unregister_all()

    def _group_changed(self, name: str) -> None:
        if self._groups.get(name) is None:
            self._offsets.commit_table.unregister_all()

    def query_offset(self, request: Command, connection: Connection) -> Command:
        """Answer the committed offset."""
        header = request.header(QueryConsumerOffsetRequestHeader)
        topic, queue_id = header.topic, header.queue_id
        offset = self._offsets.query(header.consumer_group, topic, queue_id)
        if offset < 0:
            offset = self._first_offset(header)
        return request.reply(header=QueryConsumerOffsetResponseHeader(offset=offset))

    def query_path(self) -> LookupPath:
        """Return the compiled handler of committed offsets."""
        return LookupPath(
            self.find_offset,
            texts=("consumerGroup", "topic"),
            numbers=("queueId",),
            has_offset=True,
            version=WIRE_VERSION,
            commits=self._offsets.commit_table,
        )

    def find_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return a committed offset; None if Python has to answer."""
        if topic in self._mappings or not -_QUEUE_ID_END <= queue_id < _QUEUE_ID_END:
            return None
        offset = self._offsets.query(group, topic, queue_id)
        return None if offset < 0 else offset

    def _first_offset(self, header: QueryConsumerOffsetRequestHeader) -> int:
        """Return 0 if the group may read the queue from its first message."""
        if header.set_zero_if_not_found is False:
            raise RequestRejected(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, do not set to zero, maybe this group boot first",
            )
        topic, queue_id = header.topic, header.queue_id
        is_young = self._messages.min_offset(topic, queue_id) <= 0
        if is_young and self._messages.is_in_memory(topic, queue_id, QueueOffset(0)):
            return 0
        raise RequestRejected(
            ResponseCode.QUERY_NOT_FOUND,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )

    def commit_offset(self, request: Command, connection: Connection) -> Command:
        """Store an offset, which may be lower than before."""
        fields = request.ext_fields
        topic, group = fields.get("topic"), fields.get("consumerGroup")
        if group is None or self._groups.get(group) is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!"
            )
        if topic is None or self._topics.get(topic) is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!"
            )
        for name, text in (("queueId", "QueueId"), ("commitOffset", "Offset")):
            if name not in fields:
                raise RequestRejected(
                    ResponseCode.INVALID_PARAMETER, f"{text} is null, topic is {topic}"
                )
        header = request.header(UpdateConsumerOffsetRequestHeader)
        if not 0 <= header.queue_id < MAX_QUEUES:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"QueueId[{header.queue_id}] is illegal, topic is {topic}",
            )
        if header.commit_offset is None:  # the text "null"
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {topic}"
            )
        if self._offsets.is_reset(group, topic, header.queue_id):
            return request.reply(remark="Offset has been previously reset")
        self._offsets.commit(
            connection.remote_address,
            group,
            topic,
            header.queue_id,
            header.commit_offset,
        )
        if self._is_compiled and topic not in self._mappings:
            self._offsets.commit_table.register(group, topic, header.queue_id)
        return request.reply()
