"""Requests 303 and 321: store times of a topic's queues, and entries of a queue."""

from datetime import datetime
from typing import Final

from rmq.plugin import (
    BrokerContext,
    Connection,
    ConsumeQueue,
    QueueOffset,
    RequestRejected,
    TurnTaker,
    join_text,
)
from rmq.protocol import fastjson
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.bodies.statistics import (
    ConsumeQueueData,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.groups import QueryConsumeTimeSpanRequestHeader
from rmq.protocol.headers.query import QueryConsumeQueueRequestHeader

MAX_ENTRIES: Final = 1_024
"""Maximum number of entries of one answer."""

NOT_SET: Final = "not set any response code"
"""Java's remark in an answer to 321; tools print it."""


class QueueHandler:
    """The queue part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._store = broker.store
        self._messages = broker.messages
        self._queues = broker.queues
        self._topics = broker.topics
        self._offsets = broker.offsets
        self._consumers = broker.consumers
        self._now_ms = broker.clock.now_ms
        self._next_turn = broker.next_turn
        self._name = broker.config.broker_name

    async def query_time_spans(
        self, request: Command, connection: Connection
    ) -> Command:
        """Answer each queue's store times: first, last, and at a group's offset."""
        header = request.header(QueryConsumeTimeSpanRequestHeader)
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist"
            )
        turns = TurnTaker(self._next_turn)
        texts = []
        for queue_id in range(topic.write_queue_nums):
            await turns()
            span = self._read_time_span(header.topic, queue_id, header.group)
            texts.append(fastjson.dump_json(span))
        head, found, tail = QueryConsumeTimeSpanBody().encode().partition(b"[]")
        body = await join_text([head, found[:1], b",".join(texts), found[1:], tail])
        return request.reply(body=body)

    def _read_time_span(self, topic: str, queue_id: int, group: str) -> QueueTimeSpan:
        messages = self._messages
        where = topic, queue_id
        first_ms = messages.store_time_at(*where, messages.min_offset(*where))
        end = messages.max_offset(*where)
        last_ms = messages.store_time_at(*where, QueueOffset(end - 1))
        consumed = self._offsets.query(group, *where)
        consumed_ms = (
            messages.store_time_at(*where, QueueOffset(consumed - 1))
            if consumed > 0
            else first_ms
        )
        delay_ms = 0
        if 0 <= consumed < end:
            next_ms = messages.store_time_at(*where, QueueOffset(consumed))
            delay_ms = max(0, self._now_ms() - next_ms) if next_ms >= 0 else 0
        assert delay_ms >= 0, f"{topic} queue {queue_id}: {delay_ms}"
        return QueueTimeSpan(
            message_queue=MessageQueue(
                topic=topic, broker_name=self._name, queue_id=queue_id
            ),
            min_time_stamp=first_ms,
            max_time_stamp=last_ms,
            consume_time_stamp=consumed_ms,
            delay_time=delay_ms,
            min_time_stamp_str=_format_time(first_ms),
            max_time_stamp_str=_format_time(last_ms),
            consume_time_stamp_str=_format_time(consumed_ms),
        )

    def query_entries(self, request: Command, connection: Connection) -> Command:
        """Answer entries of a queue from an index on."""
        header = request.header(QueryConsumeQueueRequestHeader)
        topic, index = header.topic or "", header.index
        queue = self._queues.get(topic, header.queue_id)
        if queue is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{topic} is not exist!"
            )
        assert isinstance(queue, ConsumeQueue), topic
        end = self._messages.max_offset(topic, header.queue_id)
        if not queue.min_offset <= index < end:
            return request.reply(
                remark=f"Index {index} of {header.queue_id}@{topic} is not exist!"
            )
        indexes = [index]
        while len(indexes) < min(header.count, MAX_ENTRIES):
            index = queue.start_after(QueueOffset(index))
            if index >= end:
                break
            indexes.append(index)
        body = QueryConsumeQueueResponseBody(
            min_queue_index=queue.min_offset,
            max_queue_index=end,
            queue_data=[_read_entry(queue, each) for each in indexes],
        )
        if header.consumer_group:
            wanted = self._consumers.subscription(header.consumer_group, topic)
            body.subscription_data = wanted
            body.filter_data = (
                f"{header.consumer_group}@{topic} is not online!"
                if wanted is None
                else "null"
            )
        return request.reply(remark=NOT_SET, body=body.encode())


def _read_entry(queue: ConsumeQueue, offset: int) -> ConsumeQueueData:
    physical_offset, size, tags_code = queue.entry_at(QueueOffset(offset))
    return ConsumeQueueData(
        physic_offset=physical_offset, physic_size=size, tags_code=tags_code
    )


def _format_time(at_ms: int) -> str:
    """Return a time as Java's tools write it, in the local time zone."""
    at = datetime.fromtimestamp(at_ms // 1_000)
    return f"{at:%Y-%m-%d#%H:%M:%S}:{at_ms % 1_000:03}"
