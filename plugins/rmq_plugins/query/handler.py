"""Requests 12 and 33: messages by key, unique key or tags, and by physical offset.

The body of the answer contains the stored records, one after the other.  Clients search
for a unique key with `_UNIQUE_KEY_QUERY` set; they get up to 32 messages for any limit.
"""

from collections.abc import Callable, Generator

import trio

from rmq.access.actions import Action
from rmq.plugin import BrokerContext, Connection, Later, PhysicalOffset
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.query import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)

QuerySteps = Generator[Callable[[], object], None, list[PhysicalOffset]]

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
UNIQUE_KEY_MESSAGES = 32
TAGS_TYPE = "T"
BODY_LIMIT = 16 << 20
"""Maximum bytes of one answer; Java clients refuse frames of more than 16 MiB."""


class QueryHandler:
    """Known in Java as `QueryMessageProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._messages = broker.messages
        self._index = broker.index
        self._worker = trio.Lock()

    def query_by_key(self, request: Command, connection: Connection) -> Command | Later:
        """Answer the newest messages with a key, in the order of the log.

        While the index lags far, a worker reads the log, for one query at a time.
        """
        header = request.header(QueryMessageRequestHeader)
        is_unique = request.ext_fields.get(UNIQUE_KEY_QUERY) == "true"
        steps = self._messages.query(
            header.topic,
            header.key,
            UNIQUE_KEY_MESSAGES if is_unique else header.max_num,
            header.begin_timestamp,
            header.end_timestamp,
            is_tags=header.index_type == TAGS_TYPE,
        )
        try:
            first = next(steps)
        except StopIteration as end:
            return self._answer_records(request, end.value)
        return self._query_in_worker(request, steps, first)

    async def _query_in_worker(
        self, request: Command, steps: QuerySteps, step: Callable[[], object]
    ) -> Command:
        async with self._worker:
            while True:
                await trio.to_thread.run_sync(step)
                try:
                    step = next(steps)
                except StopIteration as end:
                    return self._answer_records(request, end.value)

    def _answer_records(
        self, request: Command, offsets: list[PhysicalOffset]
    ) -> Command:
        """Answer the records at these offsets."""
        body = self._join_records(offsets)
        if not body:
            return request.reply(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                header=_make_header(0, 0),
            )
        return request.reply(header=_make_header(*self._index.last_update), body=body)

    def view_by_offset(self, request: Command, connection: Connection) -> Command:
        """Answer the message at a physical offset, which message ids contain."""
        header = request.header(ViewMessageRequestHeader)
        offset = PhysicalOffset(header.offset)
        found = self._messages.verified_message_at(offset)
        if found is None:
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {offset}",
            )
        self._broker.rights.require(request, connection, found.topic, Action.GET)
        record = self._messages.record_at(offset)
        assert record is not None, f"{offset} was there a moment ago"
        return request.reply(body=record)

    def _join_records(self, offsets: list[PhysicalOffset]) -> bytes:
        """Join the newest records that fit into one answer."""
        records: list[bytes] = []
        size = 0
        for offset in reversed(offsets):
            record = self._messages.record_at(offset)
            if record is None:
                continue
            size += len(record)
            if records and size > BODY_LIMIT:
                break
            records.append(record)
        return b"".join(reversed(records))


def _make_header(timestamp_ms: int, offset: int) -> QueryMessageResponseHeader:
    return QueryMessageResponseHeader(
        index_last_update_timestamp=timestamp_ms, index_last_update_phyoffset=offset
    )
