"""Mappings of static topics: which queues of which brokers make up a logical queue.

The functions are known in Java as `TopicQueueMappingUtils`.
The clients of a static topic see `total_queues` *logical* queues. A logical queue
consists of parts, one after another. The part of generation n + 1 begins at the offset
at which an operator moved the queue to another broker. A part is a queue of a broker, a
*physical* queue; its first message has the offset `start_offset` there and
`logic_offset` in the logical queue. The last part is the leader; messages are sent to
its broker.

The broker of the leader answers for the logical queue, and asks the brokers of the
other parts. A new part has the logical offset -1, which is *undecided*. Brokers store
messages in it, but neither report their offsets to producers nor read from it.

The classes have Java's names and fields, `epoch` orders the mappings of a topic.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import field

from rmq.protocol.bodies import Body
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.headers import I32, I64

UNDECIDED: Final = -1
GLOBAL_SCOPE: Final = "__global__"


class LogicQueueMappingItem(Body, kw_only=True):
    """A part of a logical queue. An `end_offset` above the start is exclusive."""

    gen: I32 = 0
    queue_id: I32 = 0
    bname: str = ""
    logic_offset: I64 = 0
    start_offset: I64 = 0
    end_offset: I64 = -1
    time_of_start: I64 = -1
    time_of_end: I64 = -1

    @property
    def is_decided(self) -> bool:
        """Whether the part has an offset in the logical queue."""
        return self.logic_offset >= 0

    @property
    def has_end(self) -> bool:
        """Whether the part has an end offset."""
        return self.end_offset > self.start_offset

    @property
    def offset_delta(self) -> int:
        """Number that clients add to the offset of a stored message."""
        return self.logic_offset - self.start_offset

    def physical_offset(self, offset: int) -> int:
        """Return the offset in the broker's queue.

        >>> LogicQueueMappingItem(logic_offset=1_000).physical_offset(1_007)
        7
        """
        return offset - self.offset_delta

    def logical_offset(self, offset: int) -> int:
        """Return the offset in the logical queue, not before the part.

        >>> LogicQueueMappingItem(logic_offset=1_000).logical_offset(7)
        1007
        """
        return self.logic_offset + max(0, offset - self.start_offset)

    def reported_offset(self, offset: int) -> int:
        """Return the logical offset for producers: -1 while undecided.

        >>> LogicQueueMappingItem(logic_offset=-1).reported_offset(7)
        -1
        """
        if not self.is_decided:
            return UNDECIDED
        if self.end_offset >= self.start_offset:
            offset = min(offset, self.end_offset)
        return self.logical_offset(offset)

    def largest_offset(self) -> int:
        """Return the logical offset up to which there are messages according to the
        mapping.
        """
        return self.logic_offset + max(0, self.end_offset - self.start_offset)


Parts = Sequence[LogicQueueMappingItem]
"""The parts of a logical queue, oldest first."""


class TopicQueueMappingInfo(Body, kw_only=True):
    """The registration of a broker: the logical queues that it leads.

    `curr_id_map` has the physical queue of each logical queue.
    """

    topic: str = ""
    scope: str = GLOBAL_SCOPE
    total_queues: I32 = 0
    bname: str = ""
    epoch: I64 = 0
    dirty: bool = False
    curr_id_map: dict[I32, I32] = field(default_factory=dict)


class TopicQueueMappingDetail(TopicQueueMappingInfo, kw_only=True):
    """A static topic on one broker: the parts of logical queues by their ids.

    The mapping has the queues that this broker leads or has led.
    """

    hosted_queues: dict[I32, list[LogicQueueMappingItem]] = field(default_factory=dict)

    def leader_of(self, queue_id: int) -> LogicQueueMappingItem | None:
        """Return the leader of a logical queue if this broker has it."""
        parts = self.hosted_queues.get(queue_id)
        return parts[-1] if parts and parts[-1].bname == self.bname else None

    def info(self) -> TopicQueueMappingInfo:
        """Return the registration for name servers."""
        leaders = ((each, self.leader_of(each)) for each in self.hosted_queues)
        return TopicQueueMappingInfo(
            topic=self.topic,
            scope=self.scope,
            total_queues=self.total_queues,
            bname=self.bname,
            epoch=self.epoch,
            curr_id_map={
                queue_id: leader.queue_id
                for queue_id, leader in leaders
                if leader is not None
            },
        )


class TopicQueueMappingSerializeWrapper(Body, kw_only=True):
    """The file `config/topicQueueMapping.json`."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = field(
        default_factory=dict
    )


class CopiedMappings(Body, kw_only=True):
    """The part of the answer to request 21 with the static topics, which a slave
    reads.
    """

    mapping_data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = field(
        default_factory=dict
    )


def part_at(parts: Parts, offset: int) -> LogicQueueMappingItem | None:
    """Return the part of a logical offset, or the first part for smaller offsets; None
    if no part has a start offset.
    """
    decided = [part for part in parts if part.is_decided]
    for part in reversed(decided):
        if offset >= part.logic_offset:
            return part
    return decided[0] if decided else None


def part_after(
    parts: Parts, current: LogicQueueMappingItem
) -> LogicQueueMappingItem | None:
    """Return the part after a part; None if it is undecided."""
    for number, part in enumerate(parts[1:]):
        if parts[number].gen == current.gen:
            return part if part.is_decided else None
    return None


def wrong_parts(parts: Parts) -> str | None:
    """Return the error in the parts of a logical queue, in Java's words."""
    later: LogicQueueMappingItem | None = None
    for part in reversed(parts):
        if min(part.start_offset, part.gen, part.queue_id) < 0:
            return "The field is illegal, should not be negative"
        if later is not None and not part.is_decided:
            return "The non-latest item has negative logic offset"
        if later is not None and part.gen >= later.gen:
            return "The gen does not increase monotonically"
        if UNDECIDED != part.end_offset < part.start_offset:
            return "The endOffset is smaller than the start offset"
        if later is not None and later.is_decided:
            if part.logic_offset >= later.logic_offset:
                return "The base logic offset does not increase monotonically"
            if part.largest_offset() >= later.logic_offset:
                return "The max logic offset does not increase monotonically"
        later = part
    return None


def wrong_change(old: Parts, new: Parts, *, same_epoch: bool) -> str | None:
    """Return the reason why the parts of a logical queue cannot replace others, in
    Java's words.

    Decided offsets never change: messages have them, and groups have committed them.
    """
    if not old:
        return None
    if not new:
        return "The new item list is null or empty"
    if same_epoch and _location_of(old[-1]) != _location_of(new[-1]):
        return "The new leader is different but epoch equal"
    before = {part.gen: part for part in old}
    for part in new:
        known = before.get(part.gen, part)
        if _location_of(part) != _location_of(known) or (
            known.is_decided and part.logic_offset != known.logic_offset
        ):
            return f"The part of generation {part.gen} has another place than before"
    return None


def _location_of(part: LogicQueueMappingItem) -> tuple[int, str, int, int]:
    return part.gen, part.bname, part.queue_id, part.start_offset


def wrong_mapping(
    old: TopicQueueMappingDetail | None, new: TopicQueueMappingDetail
) -> str | None:
    """Return the reason why a mapping cannot replace another one, in Java's words;
    empty if it can.
    """
    for parts in new.hosted_queues.values():
        wrong = wrong_parts(parts)
        if wrong is not None:
            return wrong
    if old is None:
        return None
    if new.epoch < old.epoch:
        return f"Can't accept data with small epoch {new.epoch} < {old.epoch}"
    if new.scope != old.scope:
        return f"Can't accept data with unmatched scope {new.scope} != {old.scope}"
    same_epoch = new.epoch == old.epoch
    for queue_id, parts in old.hosted_queues.items():
        later = new.hosted_queues.get(queue_id)
        if later is None and same_epoch:
            return "Cannot accept equal epoch with null data"
        wrong = None
        if later is not None:
            wrong = wrong_change(parts, later, same_epoch=same_epoch)
        if wrong is not None:
            return wrong
    return None
