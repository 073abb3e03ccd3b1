"""Offsets of logical queues: commits of groups, first and last offsets, times.

A commit goes to the part that contains the offset. The position of a group is its
offset in the newest part in which the group has an offset.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

import msgspec

from rmq.plugin import (
    Around,
    Boundary,
    BrokerContext,
    Connection,
    Handler,
    RequestRejected,
    Result,
)
from rmq.protocol.bodies.queue_mapping import LogicQueueMappingItem, Parts, part_at
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers import TopicHeader
from rmq.protocol.headers.offsets import (
    BoundaryType,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq_plugins.static.peers import Peers

MAX_OFFSET: Final = (1 << 63) - 1


class LogicalQueue(NamedTuple):
    """A logical queue that this broker leads."""

    topic: str
    queue_id: int
    parts: Parts
    broker_name: str

    def is_here(self, part: LogicQueueMappingItem) -> bool:
        """Whether this broker has a part."""
        return part.bname == self.broker_name

    def find_part(self, offset: int) -> LogicQueueMappingItem:
        """Return the part that has an offset."""
        part = part_at(self.parts, offset)
        if part is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"no part of {self.topic}-{self.queue_id} has an offset yet",
            )
        return part


class StaticOffsets:
    """Serves requests about offsets before the ordinary handlers do."""

    def __init__(self, broker: BrokerContext, peers: Peers) -> None:
        self._mappings = broker.queue_mappings
        self._offsets = broker.offsets
        self._messages = broker.messages
        self._peers = peers

    def _find_queue(
        self, request: Command, kind: type[TopicHeader]
    ) -> LogicalQueue | None:
        """Return the logical queue of a request; None if the request names a physical
        queue.
        """
        mapping = self._mappings.get(request.ext_fields.get("topic", ""))
        if mapping is None:
            return None
        header = request.header(kind)
        if header.lo is False:
            return None
        queue_id: int = header.queue_id  # type: ignore[attr-defined] # of all kinds
        if mapping.leader_of(queue_id) is None:
            raise RequestRejected(
                ResponseCode.NOT_LEADER_FOR_QUEUE,
                f"{mapping.topic}-{queue_id} does not exit in request process of "
                f"current broker {mapping.bname}",
            )
        parts = mapping.hosted_queues[queue_id]
        return LogicalQueue(mapping.topic, queue_id, parts, mapping.bname)

    def translate(
        self,
        kind: type[TopicHeader],
        answer: Callable[[LogicalQueue, Command], Coroutine[Any, Any, Command]],
    ) -> Around:
        """Return a function that lets `answer` serve requests about logical queues."""

        def serve(handler: Handler, request: Command, connection: Connection) -> Result:
            logical = self._find_queue(request, kind)
            if logical is None:
                return handler(request, connection)
            return answer(logical, request)

        return serve

    # -- offsets of groups

    def commit_offset(
        self, handler: Handler, request: Command, connection: Connection
    ) -> Result:
        """Commit to the part that has the offset."""
        kind = UpdateConsumerOffsetRequestHeader
        logical = None
        # without a queue id the handler refuses the request
        if "queueId" in request.ext_fields:
            logical = self._find_queue(request, kind)
        if logical is None:
            return handler(request, connection)
        offset = request.header(kind).commit_offset
        if offset is None:
            return handler(request, connection)
        part = logical.find_part(offset)
        physical = part.physical_offset(max(offset, part.logic_offset))
        if not logical.is_here(part):
            return self._commit_at_peer(part, request, {"commitOffset": physical})
        mapped = _address_part(request, part)
        mapped.ext_fields["commitOffset"] = str(physical)
        return handler(mapped, connection)

    async def _commit_at_peer(
        self, part: LogicQueueMappingItem, request: Command, changed: dict[str, int]
    ) -> Command:
        answer = await self._peers.ask_part(part, request, changed)
        return request.reply(answer.code, answer.remark)

    def query_offset(
        self, handler: Handler, request: Command, connection: Connection
    ) -> Result:
        """Answer the offset of a group."""
        logical = self._find_queue(request, QueryConsumerOffsetRequestHeader)
        if logical is None:
            return handler(request, connection)
        [only] = logical.parts[-1:]
        if len(logical.parts) == 1 and only.logic_offset == 0:
            return handler(_address_part(request, only), connection)
        return self._query_parts(logical, request)

    async def _query_parts(self, logical: LogicalQueue, request: Command) -> Command:
        """Search an offset of the group, from the newest part on."""
        header = request.header(QueryConsumerOffsetRequestHeader)
        for part in reversed(logical.parts):
            if not part.is_decided:
                continue
            if logical.is_here(part):
                offset = self._offsets.query(
                    header.consumer_group, header.topic, part.queue_id
                )
            else:
                answer = await self._peers.ask_part(
                    part,
                    request,
                    {"setZeroIfNotFound": "false"},
                    accepted=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
                )
                offset = -1
                if answer.code == ResponseCode.SUCCESS:
                    offset = answer.header(QueryConsumerOffsetResponseHeader).offset
            if offset >= 0:
                found = QueryConsumerOffsetResponseHeader(
                    offset=part.logical_offset(offset)
                )
                return request.reply(header=found)
        raise RequestRejected(
            ResponseCode.QUERY_NOT_FOUND,
            "Not found, maybe this group consumer boot first",
        )

    # -- ends and times

    async def get_max_offset(self, logical: LogicalQueue, request: Command) -> Command:
        """Answer the offset after the last message."""
        part = logical.find_part(MAX_OFFSET)
        if logical.is_here(part):
            offset: int = self._messages.max_offset(logical.topic, part.queue_id)
        else:
            answer = await self._peers.ask_part(part, request, {})
            offset = answer.header(GetMaxOffsetResponseHeader).offset
        return request.reply(
            header=GetMaxOffsetResponseHeader(offset=part.logical_offset(offset))
        )

    async def get_min_offset(self, logical: LogicalQueue, request: Command) -> Command:
        """Answer the offset of the first message."""
        part = logical.find_part(0)
        if logical.is_here(part):
            offset: int = self._messages.min_offset(logical.topic, part.queue_id)
        else:
            answer = await self._peers.ask_part(part, request, {})
            offset = answer.header(GetMinOffsetResponseHeader).offset
        return request.reply(
            header=GetMinOffsetResponseHeader(offset=part.reported_offset(offset))
        )

    def get_earliest_time(
        self, handler: Handler, request: Command, connection: Connection
    ) -> Result:
        """Answer the store time of the first message."""
        logical = self._find_queue(request, GetEarliestMsgStoretimeRequestHeader)
        if logical is None:
            return handler(request, connection)
        part = logical.find_part(0)
        if logical.is_here(part):
            return handler(_address_part(request, part), connection)
        return self._ask_earliest_time(part, request)

    async def _ask_earliest_time(
        self, part: LogicQueueMappingItem, request: Command
    ) -> Command:
        answer = await self._peers.ask_part(part, request, {})
        return request.reply(
            header=answer.header(GetEarliestMsgStoretimeResponseHeader)
        )

    async def search_offset(self, logical: LogicalQueue, request: Command) -> Command:
        """Search the first message at or after the time, from the oldest part on.

        With the boundary UPPER, look for the last message up to the time; a part that
        begins later answers 0.
        """
        header = request.header(SearchOffsetRequestHeader)
        is_upper, found = header.end_boundary is BoundaryType.UPPER, -1
        for part in logical.parts:
            if not part.is_decided:
                continue
            if logical.is_here(part):
                offset: int = self._messages.offset_by_time(
                    logical.topic,
                    part.queue_id,
                    header.timestamp,
                    Boundary[header.end_boundary],
                )
                end: int = self._messages.max_offset(logical.topic, part.queue_id)
            else:
                answer = await self._peers.ask_part(part, request, {})
                offset = answer.header(SearchOffsetResponseHeader).offset
                code = RequestCode.GET_MAX_OFFSET
                answer = await self._peers.ask_part(part, request, {}, code=code)
                end = answer.header(GetMaxOffsetResponseHeader).offset
            if found < 0 or offset > 0 or not is_upper:
                found = part.logical_offset(offset)
            if offset < end and not is_upper:
                break
        return request.reply(header=SearchOffsetResponseHeader(offset=found))


def _address_part(request: Command, part: LogicQueueMappingItem) -> Command:
    """Return a request about the physical queue of a part."""
    fields = {**request.ext_fields, "queueId": str(part.queue_id)}
    return msgspec.structs.replace(request, ext_fields=fields)
