"""Requests 29, 30 and 31: the ends of a queue, and its offset at a time.

A queue that never had a message has offset 0, and so has one of an unknown topic.
"""

from rmq.broker.context import BrokerContext, Connection
from rmq.protocol.command import Command
from rmq.protocol.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from rmq.store.results import Boundary


class OffsetHandler:
    """The queue part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._store = broker.store

    def by_time(self, request: Command, connection: Connection) -> Command:
        """Answer the offset stored around a time."""
        header = request.header(SearchOffsetRequestHeader)
        offset = 0
        if not header.lite_topic:
            offset = self._store.offset_by_time(
                header.topic,
                header.queue_id,
                header.timestamp,
                Boundary[header.boundary],
            )
        return request.reply(header=SearchOffsetResponseHeader(offset=offset))

    def largest(self, request: Command, connection: Connection) -> Command:
        """Answer the offset after the last message that may be read."""
        header = request.header(GetMaxOffsetRequestHeader)
        offset = self._store.max_offset(header.topic, header.queue_id)
        return request.reply(header=GetMaxOffsetResponseHeader(offset=offset))

    def smallest(self, request: Command, connection: Connection) -> Command:
        """Answer the offset of the first message."""
        header = request.header(GetMinOffsetRequestHeader)
        offset = self._store.min_offset(header.topic, header.queue_id)
        return request.reply(header=GetMinOffsetResponseHeader(offset=offset))
