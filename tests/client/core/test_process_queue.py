"""What is committed is the lowest message that is not acknowledged."""

from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rmq.client.core.process_queue import MAX_SPAN, ProcessQueue


class Fetched(NamedTuple):
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
            found.append(Fetched(self.next, self.next % 7 + 1))
            self.next += 1
        self.next += tail
        self.queue.add(found, self.next)
        self.waits |= {each.queue_offset: each for each in found}

    @precondition(lambda self: self.waits)
    @rule(data=st.data())
    def ack(self, data):
        offset = data.draw(st.sampled_from(sorted(self.waits)))
        message = self.waits.pop(offset)
        assert self.queue.ack(message)
        self.gone.append(message)

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def ack_again(self, data):
        assert not self.queue.ack(data.draw(st.sampled_from(self.gone)))

    @rule(offset=st.integers(0, 50))
    def reset(self, offset):
        self.queue.reset(offset)
        self.waits.clear()
        self.gone.clear()
        self.next, self.committed = offset, 0

    @invariant()
    def the_lowest_one_is_committed(self):
        right = min(self.waits, default=self.next)
        assert self.queue.committable == right >= self.committed
        self.committed = right
        assert self.queue.count == len(self.waits)
        assert self.queue.bytes == sum(each.size for each in self.waits.values())
        assert self.queue.next_offset == self.next


TestAnyOrderOfAcks = AnyOrderOfAcks.TestCase


def test_one_message_that_waits_stops_the_queue():
    queue = ProcessQueue(0)
    queue.add([Fetched(i, 1) for i in range(MAX_SPAN + 1)], MAX_SPAN + 1)
    assert not queue.is_far_ahead
    queue.add([Fetched(MAX_SPAN + 1, 1)], MAX_SPAN + 2)
    assert queue.is_far_ahead
    assert queue.last_offset == MAX_SPAN + 1
    queue.ack(Fetched(0, 1))
    assert not queue.is_far_ahead
