"""A consumer that follows the answers reads every message of all parts, in order."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from rmq.protocol.bodies.queue_mapping import LogicQueueMappingItem, part_at
from rmq_plugins.static.pulls import PullOffsets, to_logical_offsets

SUCCESS, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21


class Stored(NamedTuple):
    """The physical queue of a part: offsets of its first message and after its last."""

    low: int
    high: int

    def answer(self, requested, count):
        """What a broker answers to a pull; the offsets of the messages."""
        if requested < self.low:
            return PullOffsets(MOVED, self.low, self.low, self.high), []
        if requested == self.high:
            return PullOffsets(NOT_FOUND, requested, self.low, self.high), []
        if requested > self.high:
            return PullOffsets(MOVED, self.high, self.low, self.high), []
        found = list(range(requested, min(requested + count, self.high)))
        return PullOffsets(SUCCESS, found[-1] + 1, self.low, self.high), found


@st.composite
def queues(draw):
    """Parts with what is stored of them; the newest may be undecided."""
    parts, stored, logic = [], [], 0
    for gen in range(draw(st.integers(1, 5))):
        low = draw(st.integers(0, 5))
        high = low + draw(st.integers(0, 12))
        parts.append(
            LogicQueueMappingItem(gen=gen, queue_id=gen, logic_offset=logic, bname="b")
        )
        stored.append(Stored(low, high))
        logic += high + draw(st.integers(1, 10))
    if draw(st.booleans()):
        undecided = LogicQueueMappingItem(gen=9, logic_offset=-1, bname="c")
        return [*parts, undecided], stored
    return parts, stored


@given(queues(), st.integers(0, 200), st.integers(1, 4))
def test_every_message_is_read_once(queue, start, count):
    parts, stored = queue
    everything = [
        part.logical_offset(offset)
        for part, each in zip(parts, stored, strict=False)
        for offset in range(each.low, each.high)
    ]
    offset, read = start, []
    for _ in range(300):
        part = part_at(parts, offset)
        requested = part.physical_offset(offset)
        found, messages = stored[part.queue_id].answer(requested, count)
        ends, at = to_logical_offsets(parts, part, requested, found)
        read += [each + part.offset_delta for each in messages]
        assert ends.min >= 0
        assert at.offset_delta == part.offset_delta or not messages
        if ends.code == NOT_FOUND or (ends.code == MOVED and ends.next == offset):
            break
        assert ends.next != offset, "the consumer would ask the same again"
        offset = ends.next
    assert read == [each for each in everything if each >= start]
    assert offset <= max(start, ends.max)


@given(queues(), st.integers(-3, 400))
def test_the_end_of_the_last_decided_part_is_waited_for(queue, beyond):
    parts, stored = queue
    last, [*_, ends] = parts[len(stored) - 1], stored
    requested = ends.high + max(beyond, 0)
    found, _ = ends.answer(requested, 1)
    told, at = to_logical_offsets(parts, last, requested, found)
    assert at is last
    assert told.code == (NOT_FOUND if beyond <= 0 else MOVED)
    assert told.next == last.logical_offset(ends.high)
