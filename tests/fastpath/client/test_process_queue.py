"""What is committed is the lowest message not acknowledged; how messages go out."""

from collections import deque
from typing import NamedTuple

import pytest
import trio
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rmq._fastpath.client.messages import decode_messages
from rmq._fastpath.client.process_queue import (
    MAX_SPAN,
    Lease,
    MessageIterator,
    ProcessQueue,
)
from rmq._fastpath.client.process_queue import FetchBuffer as Handed
from rmq._fastpath.log.encode import RecordEncoder


class FetchBuffer(NamedTuple):
    queue_offset: int
    size: int


class AnyOrderOfAcks(RuleBasedStateMachine):
    """Beside a dictionary of all that waits."""

    def __init__(self):
        super().__init__()
        self.queue = ProcessQueue(5)
        self.waits = {}
        self.gone = []
        self.next = 5
        self.committed = 0

    @rule(gaps=st.lists(st.integers(0, 3), max_size=5), tail=st.integers(0, 3))
    def fetch(self, gaps, tail):
        """Filtered messages leave gaps."""
        found = []
        for gap in gaps:
            self.next += gap
            found.append(FetchBuffer(self.next, self.next % 7 + 1))
            self.next += 1
        self.next += tail
        self.queue.add(found, self.next)
        self.waits |= {each.queue_offset: each for each in found}

    @precondition(lambda self: self.waits)
    @rule(data=st.data())
    def ack(self, data):
        offset = data.draw(st.sampled_from(sorted(self.waits)))
        message = self.waits.pop(offset)
        is_acked = self.queue.ack(message)
        assert is_acked
        self.gone.append(message)

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def ack_again(self, data):
        is_acked = self.queue.ack(data.draw(st.sampled_from(self.gone)))
        assert not is_acked

    @rule(offset=st.integers(0, 50))
    def reset(self, offset):
        self.queue.reset(offset)
        self.waits.clear()
        self.gone.clear()
        self.next, self.committed = offset, 0

    @invariant()
    def the_lowest_one_is_committed(self):
        right = min(self.waits, default=self.next)
        assert self.queue.commit_offset == right >= self.committed
        self.committed = right
        assert self.queue.count == len(self.waits)
        assert self.queue.bytes == sum(each.size for each in self.waits.values())
        assert self.queue.next_offset == self.next


TestAnyOrderOfAcks = AnyOrderOfAcks.TestCase


def test_one_message_that_waits_stops_the_queue():
    queue = ProcessQueue(0)
    queue.add([FetchBuffer(i, 1) for i in range(MAX_SPAN + 1)], MAX_SPAN + 1)
    assert not queue.is_far_ahead
    queue.add([FetchBuffer(MAX_SPAN + 1, 1)], MAX_SPAN + 2)
    assert queue.is_far_ahead
    assert queue.last_offset == MAX_SPAN + 1
    queue.ack(FetchBuffer(0, 1))
    assert not queue.is_far_ahead


def test_what_was_never_fetched_cannot_be_acknowledged():
    """A message that a filter left out, or of before a reset."""
    queue = ProcessQueue(0)
    queue.add([FetchBuffer(3, 7), FetchBuffer(9, 7)], 10)
    is_acked = queue.ack(FetchBuffer(5, 7))
    assert not is_acked
    is_acked = queue.ack(FetchBuffer(10, 7))
    assert not is_acked
    assert (queue.count, queue.bytes, queue.commit_offset) == (2, 14, 3)
    with pytest.raises(IndexError):
        _ = ProcessQueue(4).last_offset


def received(count, lease):
    encoder = RecordEncoder(bytes(8))
    for offset in range(count):
        encoder.stage(b"T", 0, offset, 2, 0, 0, 3, bytes(8), 4, 0, 0, b"x", b"")
    return decode_messages(encoder.staged_bytes(), "T", None, lease)


class Finds:
    """A consumer that has no more messages, and is asked for them."""

    def __init__(self):
        self.settled = 0

    async def next_message(self):
        return None

    def ack_last(self):
        self.settled += 1
        self.handout.last = None


def handed():
    fetched, lease = Handed(), Lease()
    fetched.ready, fetched.blocked = deque(), set()
    lease.buffer, lease.state = fetched, ProcessQueue(0)
    consumer = Finds()
    consumer.handout = MessageIterator(consumer, fetched)
    consumer.handout.is_plain = True
    messages = received(3, lease)
    lease.state.add(messages, 3)
    fetched.ready.extend(messages)
    fetched.count, fetched.bytes = 3, lease.state.bytes
    return consumer, lease


async def test_the_message_before_counts_as_consumed():
    consumer, lease = handed()
    seen = []
    async for message in consumer.handout:
        await trio.lowlevel.checkpoint()
        seen.append((message.queue_offset, lease.state.commit_offset))
    assert seen == [(0, 0), (1, 1), (2, 2)]
    assert (lease.state.commit_offset, lease.buffer.count, lease.buffer.bytes) == (
        3,
        0,
        0,
    )
    assert consumer.settled == 0


async def test_messages_of_a_queue_that_is_gone_are_left_out():
    consumer, lease = handed()
    first = await anext(consumer.handout)
    lease.is_revoked = True
    with pytest.raises(StopAsyncIteration):
        await anext(consumer.handout)
    is_acked = first.ack()
    assert not is_acked
    assert lease.state.commit_offset == 0


async def test_room_is_given_to_queues_that_wait_for_it():
    consumer, lease = handed()
    freed = []

    class Waits(Handed):
        def on_acked(self, held):
            freed.append(held)

    lease.buffer = Waits()
    lease.buffer.blocked = {lease}
    (await anext(consumer.handout)).ack()
    assert freed == [lease]


async def test_what_is_not_plain_is_settled_by_the_consumer():
    """After a stop, in ordered groups, and for lists."""
    consumer, _ = handed()
    await anext(consumer.handout)
    consumer.handout.is_plain = False
    with pytest.raises(StopAsyncIteration):
        await anext(consumer.handout)
    assert consumer.settled == 1
    consumer.handout.is_plain = True
    consumer.handout.last = [await anext(consumer.handout)]
    await anext(consumer.handout)
    assert consumer.settled == 2
