"""Requests 29 to 32, 43, 45, 308 and 314: offsets and times of queues, and of groups.

A queue that never had a message has offset 0, and so does a queue of an unknown topic.
The smallest offset of a queue of batches without messages is -1.
"""

from typing import Final

from rmq.plugin import Boundary, BrokerContext, Connection, RequestRejected
from rmq.protocol import fastjson
from rmq.protocol.bodies.queues import (
    ConsumerOffsetSerializeWrapper,
    LmqOffsetSerializeWrapper,
)
from rmq.protocol.bodies.statistics import QueryCorrectionOffsetBody
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.offsets import (
    CloneGroupOffsetRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryCorrectionOffsetHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from rmq.protocol.topics import lite_queue

DELAY_OFFSETS: Final = "delayOffset"
"""The facts of the plugin schedule, which delivers delayed messages."""

LAGGING: Final = (1 << 63) - 1
"""Answer for a queue in which the compared group lags behind all other groups."""


class OffsetHandler:
    """The offset part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._messages = broker.messages
        self._topics = broker.topics
        self._offsets = broker.offsets
        self._consumers = broker.consumers
        self._facts = broker.facts

    def search_offset(self, request: Command, connection: Connection) -> Command:
        """Answer the offset of a message stored at a time, or next to it."""
        header = request.header(SearchOffsetRequestHeader)
        topic, offset = header.topic, 0
        lite = header.lite_topic or ""
        if lite.strip():
            topic = lite_queue(topic, lite)
        if topic == header.topic or self._messages.max_offset(topic, header.queue_id):
            offset = self._messages.offset_by_time(
                topic,
                header.queue_id,
                header.timestamp,
                Boundary[header.end_boundary],
            )
        return request.reply(header=SearchOffsetResponseHeader(offset=offset))

    def get_max_offset(self, request: Command, connection: Connection) -> Command:
        """Answer the offset after the last visible message."""
        header = request.header(GetMaxOffsetRequestHeader)
        offset = self._messages.max_offset(header.topic, header.queue_id)
        return request.reply(header=GetMaxOffsetResponseHeader(offset=offset))

    def get_min_offset(self, request: Command, connection: Connection) -> Command:
        """Answer the offset of the first message."""
        header = request.header(GetMinOffsetRequestHeader)
        offset = self._messages.reported_min_offset(header.topic, header.queue_id)
        return request.reply(header=GetMinOffsetResponseHeader(offset=offset))

    def get_earliest_time(self, request: Command, connection: Connection) -> Command:
        """Answer the store time of the first message; -1 if there is no message."""
        header = request.header(GetEarliestMsgStoretimeRequestHeader)
        where = header.topic, header.queue_id
        at_ms = self._messages.store_time_at(*where, self._messages.min_offset(*where))
        return request.reply(
            header=GetEarliestMsgStoretimeResponseHeader(timestamp=at_ms)
        )

    async def get_consumer_offsets(
        self, request: Command, connection: Connection
    ) -> Command:
        """Answer the table of committed offsets."""
        wrapper = ConsumerOffsetSerializeWrapper
        if self._offsets.has_lmq:
            wrapper = LmqOffsetSerializeWrapper
        body = wrapper(
            data_version=self._offsets.data_version,
            group_topic_map=self._offsets.topics_by_group(),
        )
        return request.reply(body=await self._offsets.fill_document(body))

    def get_delay_offsets(self, request: Command, connection: Connection) -> Command:
        """Answer the delivered offset of each delay level."""
        offsets = self._facts(DELAY_OFFSETS)
        if offsets is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "No delay offset in this broker"
            )
        return request.reply(body=fastjson.dump_json(offsets))

    def query_correction_offset(
        self, request: Command, connection: Connection
    ) -> Command:
        """Answer the smallest offset of all groups in each queue of a topic.

        The answer is `LAGGING` if the compared group is before it. Unlike in Java, the
        request changes nothing: excluded groups do not count, but keep their offsets.
        """
        header = request.header(QueryCorrectionOffsetHeader)
        excluded = set((header.filter_groups or "").split(","))
        smallest: dict[int, int] = {}
        for group in self._offsets.groups_of(header.topic):
            if group in excluded:
                continue
            for queue_id, offset in self._offsets.queues(group, header.topic).items():
                if offset >= self._messages.min_offset(header.topic, queue_id):
                    smallest[queue_id] = min(offset, smallest.get(queue_id, LAGGING))
        assert all(offset >= 0 for offset in smallest.values()), smallest
        compared = self._offsets.queues(header.compare_group, header.topic)
        for queue_id, offset in compared.items():
            if smallest.get(queue_id, 0) > offset:
                smallest[queue_id] = LAGGING
        body = QueryCorrectionOffsetBody(correction_offsets=smallest)
        return request.reply(body=body.encode())

    def clone_offsets(self, request: Command, connection: Connection) -> Command:
        """Copy the offsets of one group to another, in one topic or in all topics."""
        header = request.header(CloneGroupOffsetRequestHeader)
        source, target = header.src_group, header.dest_group
        topics = [header.topic] if header.topic else self._offsets.topics_of(source)
        for topic in topics:
            online = self._consumers.group(target)
            is_wanted = (
                header.offline
                or online is None
                or not online.subscriptions
                or topic in online.subscriptions
            )
            if is_wanted and self._topics.get(topic) is not None:
                self._offsets.clone(source, target, topic)
        return request.reply()
