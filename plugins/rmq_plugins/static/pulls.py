"""Pulls of logical queues: from the part that contains the offset.

At the end of a part the answer sends the client to the next part
(20, PULL_RETRY_IMMEDIATELY). The answer has logical offsets, and `offsetDelta`, which
the client adds to the stored offsets of the records.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from rmq.plugin import BrokerContext, Connection, Handler, Result
from rmq.protocol.bodies.queue_mapping import (
    LogicQueueMappingItem,
    Parts,
    part_after,
    part_at,
)
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PULL_COMMIT_OFFSET, PULL_SUSPEND
from rmq.protocol.headers import H, Header
from rmq.protocol.headers.pull import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from rmq_plugins.static.peers import Peers

_CODES: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class PullOffsets(NamedTuple):
    """The code and the offsets in the answer to a pull."""

    code: int
    next: int
    min: int
    max: int


def to_logical_offsets(
    parts: Parts, part: LogicQueueMappingItem, requested: int, found: PullOffsets
) -> tuple[PullOffsets, LogicQueueMappingItem]:
    """Return the answer for the client, and the part that has its next offset.

    `found` is the answer of the part's broker to a pull from `requested`; both have
    physical offsets.
    """
    code, next_, low, high = found
    if code != ResponseCode.SUCCESS and requested < low:
        is_first = part == part_at(parts, 0)
        code = (
            ResponseCode.PULL_OFFSET_MOVED
            if is_first
            else ResponseCode.PULL_RETRY_IMMEDIATELY
        )
        next_ = low
    elif code != ResponseCode.SUCCESS and requested >= high:
        following = part_after(parts, part)
        if following is not None:
            code, part = ResponseCode.PULL_RETRY_IMMEDIATELY, following
            next_ = low = high = part.start_offset
        elif code == ResponseCode.PULL_OFFSET_MOVED:
            next_ = high
    if part.has_end:
        next_ = min(next_, part.end_offset)
    largest = max(part.logical_offset(high), parts[-1].largest_offset())
    return PullOffsets(
        code, part.logical_offset(next_), part.logical_offset(low), largest
    ), part


class MappedPull(Command, kw_only=True):
    """A pull from a part on this broker; its answer has logical offsets."""

    parts: list[LogicQueueMappingItem]
    part: LogicQueueMappingItem
    decoded: PullMessageRequestHeader
    """The header with the physical queue and offset; a held pull advances the
    offset.
    """

    def header(self, kind: type[H]) -> H:
        """Return the translated header."""
        assert isinstance(self.decoded, kind), kind
        return self.decoded

    def reply(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        *,
        header: Header | None = None,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Command:
        """Build the answer, see `Command.reply`."""
        fields = {**(ext_fields or {})}
        if "nextBeginOffset" in fields:
            requested = self.decoded.queue_offset
            code = _translate_fields(fields, self.parts, self.part, requested, code)
        return super().reply(code, remark, header=header, ext_fields=fields, body=body)


class StaticPulls:
    """Serves pulls of logical queues before the handler of pulls."""

    def __init__(self, broker: BrokerContext, peers: Peers) -> None:
        self._mappings = broker.queue_mappings
        self._peers = peers

    def pull(
        self, handler: Handler, request: Command, connection: Connection
    ) -> Result:
        """Pull from the part of a logical queue that has the offset."""
        mapping = self._mappings.get(request.ext_fields.get("topic", ""))
        if mapping is None:
            return handler(request, connection)
        header = request.header(PullMessageRequestHeader)
        if header.lo is False:
            return handler(request, connection)
        if mapping.leader_of(header.queue_id) is None:
            return request.reply(
                ResponseCode.NOT_LEADER_FOR_QUEUE,
                f"{mapping.topic}-{header.queue_id} cannot find mapping item in "
                f"request process of current broker {mapping.bname}",
            )
        parts = mapping.hosted_queues[header.queue_id]
        part = part_at(parts, header.queue_offset)
        if part is None:
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                f"no part of {mapping.topic}-{header.queue_id} has an offset yet",
            )
        _address_part(header, parts, part)
        if part.bname == mapping.bname:
            mapped = MappedPull(
                *msgspec.structs.astuple(request),
                parts=parts,
                part=part,
                decoded=header,
            )
            return handler(mapped, connection)
        return self._pull_from_peer(request, header, parts, part)

    async def _pull_from_peer(
        self,
        request: Command,
        header: PullMessageRequestHeader,
        parts: Parts,
        part: LogicQueueMappingItem,
    ) -> Command:
        """Pull from another broker, which does not hold the request."""
        flags = header.sys_flag & ~(PULL_SUSPEND | PULL_COMMIT_OFFSET)
        changed = {
            "queueOffset": header.queue_offset,
            "maxMsgNums": header.max_msg_nums,
            "sysFlag": flags,
        }
        answer = await self._peers.ask_part(part, request, changed, accepted=_CODES)
        answer.header(PullMessageResponseHeader)  # raises for an invalid answer
        fields = dict(answer.ext_fields)
        code = _translate_fields(fields, parts, part, header.queue_offset, answer.code)
        return request.reply(code, answer.remark, ext_fields=fields, body=answer.body)


def _address_part(
    header: PullMessageRequestHeader, parts: Parts, part: LogicQueueMappingItem
) -> None:
    """Address a header to the part; do not commit an offset of another part."""
    if part_at(parts, header.commit_offset) is part and (
        header.commit_offset >= part.logic_offset
    ):
        header.commit_offset = part.physical_offset(header.commit_offset)
    else:
        header.sys_flag &= ~PULL_COMMIT_OFFSET
    header.queue_id = part.queue_id
    header.queue_offset = part.physical_offset(header.queue_offset)
    if part.has_end:
        size = part.end_offset - part.start_offset
        header.max_msg_nums = min(header.max_msg_nums, size)


def _translate_fields(
    fields: dict[str, str],
    parts: Parts,
    part: LogicQueueMappingItem,
    requested: int,
    code: int,
) -> int:
    """Change the fields of an answer to logical offsets; return its code."""
    names = "nextBeginOffset", "minOffset", "maxOffset"
    next_, low, high = (int(fields[name]) for name in names)
    found = PullOffsets(code, next_, low, high)
    ends, part = to_logical_offsets(parts, part, requested, found)
    fields.update(zip(names, map(str, ends[1:]), strict=True))
    fields["offsetDelta"] = str(part.offset_delta)
    return ends.code
