"""Requests 208, 315 and 317: progress of groups, and messages in and out."""

from collections.abc import Iterable
from typing import Final

from rmq.plugin import BrokerContext, Connection, QueueOffset, RequestRejected
from rmq.protocol import fastjson
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.bodies.groups import ConsumeStats, OffsetWrapper
from rmq.protocol.bodies.statistics import GROUP_GET_NUMS, ConsumeStatsList
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
        parts: list[bytes] = []
        rate, room = 0.0, QUEUES_OF_A_TURN
        for name in dict.fromkeys(topic_names):
            topic = self._topics.get(name)
            if topic is None or not self._is_subscribed(group, name):
                continue
            rate += self._consume_rate(group, name)
            left = range(topic.read_queue_nums)
            while left:
                table = self._read_progress(group, name, left[:room])
                parts.append(fastjson.dump_json(table)[1:-1])
                left, room = left[room:], room - len(left[:room])
                if not room:
                    await self._next_turn()
                    room = QUEUES_OF_A_TURN
        text = ConsumeStats(consume_tps=rate).encode()
        table_text = b'"offsetTable":{%b}' % b",".join(parts)
        return request.reply(body=text.replace(_NO_QUEUES, table_text, 1))

    def list_consume_stats(self, request: Command, connection: Connection) -> Command:
        """Answer the progress of every group; `isOrder` selects ordered topics."""
        is_order = request.header(GetConsumeStatsInBrokerHeader).is_order
        answer = ConsumeStatsList(broker_addr=self._address)
        for group in self._groups.all():
            found = []
            for name in self._offsets.topics_of(group):
                topic = self._topics.get(name)
                if topic is None or (is_order and not topic.order):
                    continue
                if not self._is_subscribed(group, name):
                    continue
                table = self._read_progress(group, name, range(topic.read_queue_nums))
                found.append(
                    ConsumeStats(
                        offset_table=table, consume_tps=self._consume_rate(group, name)
                    )
                )
                for queue in table.values():
                    answer.total_diff += queue.broker_offset - queue.consumer_offset
                    answer.total_inflight_diff += (
                        queue.pull_offset - queue.consumer_offset
                    )
            answer.consume_stats_list.append({group: found})
        return request.reply(body=answer.encode())

    def _is_subscribed(self, group: str, topic: str) -> bool:
        """Return whether a group subscribes to the topic, or is offline."""
        online = self._consumers.group(group)
        return (
            online is None or not online.subscriptions or topic in online.subscriptions
        )

    def _read_progress(
        self, group: str, topic: str, queues: Iterable[int]
    ) -> dict[MessageQueue, OffsetWrapper]:
        return {
            MessageQueue(
                topic=topic, broker_name=self._name, queue_id=queue_id
            ): self._read_queue_progress(group, topic, queue_id)
            for queue_id in queues
        }

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
