"""Requests 208, 315 and 317: progress of groups, and messages in and out."""

from collections.abc import AsyncIterator, Iterable
from typing import Final

from rmq.plugin import BrokerContext, Connection, QueueOffset, RequestRejected
from rmq.protocol import fastjson
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.bodies.groups import ConsumeStats, OffsetWrapper
from rmq.protocol.bodies.statistics import GROUP_GET_NUMS, ConsumeStatsList
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.admin import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)

QUEUES_OF_A_TURN: Final = 64
"""Queues whose progress is read before other requests are served, in about 1 ms."""

_NO_QUEUES: Final = b'"offsetTable":{}'
_NO_GROUPS: Final = b'"consumeStatsList":[]'


class StatisticsHandler:
    """The statistics part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._topics = broker.topics
        self._groups = broker.groups
        self._offsets = broker.offsets
        self._mappings = broker.queue_mappings
        self._consumers = broker.consumers
        self._messages = broker.messages
        self._statistics = broker.statistics
        self._next_turn = broker.next_turn
        self._turn_room = QUEUES_OF_A_TURN
        """Queues that may still be read before the next turn."""

        self._name = broker.config.broker_name
        self._address = broker.address

    def view_broker_stats(self, request: Command, connection: Connection) -> Command:
        """Answer one item over minute, hour and day."""
        header = request.header(ViewBrokerStatsDataRequestHeader)
        data = self._statistics.view(header.stats_name, header.stats_key)
        if data is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        return request.reply(body=data.encode())

    async def get_consume_stats(
        self, request: Command, connection: Connection
    ) -> Command:
        """Answer the progress of a group in its topics, or in the named ones.

        Other requests are served between the parts of a long answer.
        """
        header = request.header(GetConsumeStatsRequestHeader)
        group = header.consumer_group
        if header.topic:
            topic_names = [header.topic]
        elif header.topic_list:
            topic_names = header.topic_list.split(";")
        else:
            topic_names = self._offsets.topics_of(group)
        tables: list[bytes] = []
        rate = 0.0
        for name in dict.fromkeys(topic_names):
            topic = self._topics.get(name)
            if topic is not None and self._is_subscribed(group, name):
                rate += self._consume_rate(group, name)
                parts = self._read_in_turns(group, topic)
                tables += [fastjson.dump_json(part) async for part in parts]
        return request.reply(body=_stats_text(tables, rate))

    async def list_consume_stats(
        self, request: Command, connection: Connection
    ) -> Command:
        """Answer the progress of every group; `isOrder` selects ordered topics.

        Other requests are served between the parts, as for one group.
        """
        is_order = request.header(GetConsumeStatsInBrokerHeader).is_order
        answer = ConsumeStatsList(broker_addr=self._address)
        texts = []
        for group in [*self._groups.all()]:
            found = []
            for name in self._offsets.topics_of(group):
                topic = self._topics.get(name)
                if topic is None or (is_order and not topic.order):
                    continue
                if not self._is_subscribed(group, name):
                    continue
                tables = []
                async for table in self._read_in_turns(group, topic):
                    tables.append(fastjson.dump_json(table))
                    for queue in table.values():
                        answer.total_diff += queue.broker_offset - queue.consumer_offset
                        answer.total_inflight_diff += (
                            queue.pull_offset - queue.consumer_offset
                        )
                found.append(_stats_text(tables, self._consume_rate(group, name)))
            texts.append(b"{%b:[%b]}" % (fastjson.dump_json(group), b",".join(found)))
        groups = b'"consumeStatsList":[%b]' % b",".join(texts)
        return request.reply(body=answer.encode().replace(_NO_GROUPS, groups, 1))

    def _is_subscribed(self, group: str, topic: str) -> bool:
        """Return whether a group subscribes to the topic, or is offline."""
        online = self._consumers.group(group)
        return (
            online is None or not online.subscriptions or topic in online.subscriptions
        )

    async def _read_in_turns(
        self, group: str, topic: TopicConfig
    ) -> AsyncIterator[dict[MessageQueue, OffsetWrapper]]:
        """Yield the progress in the queues of a topic, part by part."""
        name = topic.topic_name or ""
        left = range(topic.read_queue_nums)
        while left:
            if not self._turn_room:
                await self._next_turn()
                self._turn_room = QUEUES_OF_A_TURN
            room = self._turn_room
            yield {
                MessageQueue(
                    topic=name, broker_name=self._name, queue_id=queue_id
                ): self._read_queue_progress(group, name, queue_id)
                for queue_id in left[:room]
            }
            self._turn_room -= len(left[:room])
            left = left[room:]

    def _read_queue_progress(
        self, group: str, topic: str, queue_id: int
    ) -> OffsetWrapper:
        consumed = self._offsets.next_offset_of(group, topic, queue_id)
        if topic not in self._mappings:  # tools look for the part that has an offset
            consumed = max(0, consumed)
        last_ms = 0
        if consumed > 0:
            last = QueueOffset(consumed - 1)
            last_ms = max(0, self._messages.store_time_at(topic, queue_id, last))
        return OffsetWrapper(
            broker_offset=self._messages.max_offset(topic, queue_id),
            consumer_offset=consumed,
            pull_offset=max(
                consumed, self._statistics.pulled_offset(group, topic, queue_id)
            ),
            last_timestamp=last_ms,
        )

    def _consume_rate(self, group: str, topic: str) -> float:
        return self._statistics.rate(GROUP_GET_NUMS, f"{topic}@{group}")


def _stats_text(tables: Iterable[bytes], rate: float) -> bytes:
    """Return the document of a group's progress; `tables` are its parts as JSON."""
    queues = b'"offsetTable":{%b}' % b",".join(each[1:-1] for each in tables)
    return ConsumeStats(consume_tps=rate).encode().replace(_NO_QUEUES, queues, 1)
