"""Requests 208, 315 and 317: progress of groups, and messages in and out."""

from typing import Final

from rmq.plugin import (
    BrokerContext,
    Connection,
    QueueOffset,
    RequestRejected,
    TurnTaker,
    join_text,
)
from rmq.protocol import fastjson
from rmq.protocol.bodies.groups import ConsumeStats, OffsetWrapper
from rmq.protocol.bodies.statistics import GROUP_GET_NUMS, ConsumeStatsList
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.encoded_members import fill
from rmq.protocol.headers.admin import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rmq_plugins.admin.queue_tables import read_queue_members

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
        self._name = broker.config.broker_name
        self._address = broker.address

    async def view_broker_stats(
        self, request: Command, connection: Connection
    ) -> Command:
        """Answer one item over minute, hour and day."""
        header = request.header(ViewBrokerStatsDataRequestHeader)
        await TurnTaker(self._next_turn).run_each(self._statistics.count_parts())
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
        turns = TurnTaker(self._next_turn)
        await turns.run_each(self._statistics.count_parts())
        tables: list[bytes] = []
        rate = 0.0
        for name in dict.fromkeys(topic_names):
            topic = self._topics.get(name)
            if topic is not None and self._is_subscribed(group, name):
                rate += self._consume_rate(group, name)
                tables += await self._read_progress(group, topic, turns)
            await turns()
        return request.reply(body=await join_text(_stats_pieces(tables, rate)))

    async def list_consume_stats(
        self, request: Command, connection: Connection
    ) -> Command:
        """Answer the progress of every group; `isOrder` selects ordered topics.

        Other requests are served between the parts of the answer, as for one group.
        """
        is_order = request.header(GetConsumeStatsInBrokerHeader).is_order
        answer = ConsumeStatsList(broker_addr=self._address)
        turns = TurnTaker(self._next_turn)
        await turns.run_each(self._statistics.count_parts())
        pieces: list[bytes] = []
        for group in [*self._groups.all()]:
            name_text = b"{%b:[" % fastjson.dump_json(group)
            pieces += [b"," if pieces else b"", name_text]
            is_first = True
            for name in self._offsets.topics_of(group):
                await turns()
                topic = self._topics.get(name)
                if topic is None or (is_order and not topic.order):
                    continue
                if not self._is_subscribed(group, name):
                    continue
                tables = await self._read_progress(group, topic, turns, answer)
                rate = self._consume_rate(group, name)
                pieces += [b"" if is_first else b",", *_stats_pieces(tables, rate)]
                is_first = False
            pieces.append(b"]}")
            await turns()
        head, found, tail = answer.encode().partition(_NO_GROUPS)
        body = await join_text([head, found[:-1], *pieces, found[-1:], tail])
        return request.reply(body=body)

    def _is_subscribed(self, group: str, topic: str) -> bool:
        """Return whether a group subscribes to the topic, or is offline."""
        online = self._consumers.group(group)
        return (
            online is None or not online.subscriptions or topic in online.subscriptions
        )

    async def _read_progress(
        self,
        group: str,
        topic: TopicConfig,
        turns: TurnTaker,
        sums: ConsumeStatsList | None = None,
    ) -> list[bytes]:
        """Return the progress in the queues of a topic, and add it to `sums`."""

        def read(name: str, queue_id: int) -> OffsetWrapper:
            queue = self._read_queue_progress(group, name, queue_id)
            if sums is not None:
                sums.total_diff += queue.broker_offset - queue.consumer_offset
                sums.total_inflight_diff += queue.pull_offset - queue.consumer_offset
            return queue

        name, count = topic.topic_name or "", topic.read_queue_nums
        return await read_queue_members(self._name, name, count, read, turns)

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
        return self._statistics.minute_rate(GROUP_GET_NUMS, f"{topic}@{group}")


def _stats_pieces(tables: list[bytes], rate: float) -> list[bytes]:
    """Return the document of a group's progress in pieces; `tables` has its members."""
    return fill(ConsumeStats(consume_tps=rate).encode(), "offsetTable", tables)
