"""CheckpointTable against a slow model: look-ups, times, committed offsets."""

import gc
import sys
import weakref
from collections import Counter
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmq._fastpath.handlers.checkpoint import Checkpoint, PopQueue
from rmq._fastpath.handlers.checkpoint_table import CheckpointTable
from rmq._fastpath.log.queue_tail import TailSet

STAY_MS = 100


def new_table(clock, **more):
    table = CheckpointTable(
        TailSet(),
        on_acks=lambda acks: None,
        on_touched=lambda queues: None,
        on_wake=lambda at_ms: None,
        clock_ms=lambda: clock[0],
        steady_ms=lambda: clock[0],
        **more,
    )
    table.stay_ms, table.is_buffered = STAY_MS, True
    return table


class Tables(RuleBasedStateMachine):
    """The model has lists; each question walks over all of them."""

    @initialize()
    def begin(self):
        self.clock = [1_000]
        self.table = new_table(self.clock)
        self.queues = [PopQueue("T", "G", number, 0) for number in range(3)]
        self.live, self.due, self.young = [], [], []
        self.open = {queue: [] for queue in self.queues}

    @rule(
        number=st.integers(0, 2),
        start=st.integers(0, 40),
        invisible_ms=st.integers(1, 300),
        size=st.integers(1, 4),
        is_adopted=st.booleans(),
    )
    def add(self, number, start, invisible_ms, size, is_adopted):
        queue, now_ms = self.queues[number], self.clock[0]
        found = self.table.find("T", "G", number, start, now_ms)
        assert found is self.find_live(queue, start, now_ms)
        if found is not None:
            return
        offsets = tuple(range(start, start + size))
        checkpoint = Checkpoint(
            queue, start, now_ms, invisible_ms, 0, offsets, 0, is_adopted=is_adopted
        )
        self.table.add(checkpoint)
        self.table.add_young(checkpoint)
        self.live.append(checkpoint)
        self.due.append((now_ms + invisible_ms, checkpoint))
        self.young.append((now_ms + STAY_MS, checkpoint))
        if not is_adopted:
            self.open[queue].append(checkpoint)

    def find_live(self, queue, start, pop_ms):
        for each in self.live:
            if (each.queue, each.start, each.pop_ms) == (queue, start, pop_ms):
                return each
        return None

    @rule(number=st.integers(0, 50))
    def end(self, number):
        if self.live:
            checkpoint = self.live.pop(number % len(self.live))
            self.table.end(checkpoint)
            assert checkpoint.is_done

    @rule(number=st.integers(0, 50), end=st.integers(1, 10))
    def write(self, number, end):
        if self.live:
            checkpoint = self.live[number % len(self.live)]
            checkpoint.is_written, checkpoint.stored_end = True, end

    @rule(ms=st.integers(0, 200), name=st.sampled_from(["due", "young"]))
    def take_first(self, ms, name):
        self.clock[0] += ms
        entries = getattr(self, name)
        waiting = [each for each in entries if not each[1].is_done]
        wanted = min((at_ms for at_ms, _ in waiting), default=None)
        assert getattr(self.table, f"next_{name}_ms")() == wanted
        taken = getattr(self.table, f"take_{name}")(self.clock[0])
        if wanted is None or wanted > self.clock[0]:
            assert taken is None
            return
        first = next(each for each in waiting if each[0] == wanted)
        assert taken is first[1]
        entries.remove(first)

    @rule(number=st.integers(0, 2), stable_end=st.integers(0, 10))
    def commit(self, number, stable_end):
        queue = self.queues[number]
        queue.next_offset = 50
        entries = self.open[queue]
        waits = False
        while entries:
            first = min(entries, key=lambda each: each.start)
            if not (first.is_done or first.is_written):
                break
            waits = first.stored_end > stable_end
            if waits:
                break
            entries.remove(first)
        assert queue.drop_ended(stable_end) == waits
        assert queue.first_open == min((each.start for each in entries), default=50)

    @invariant()
    def counts_are_right(self):
        if not hasattr(self, "table"):
            return
        assert Counter(map(id, self.table.all())) == Counter(map(id, self.live))
        assert self.table.count == len(self.live)
        for queue in self.queues:
            assert queue.count == sum(each.queue is queue for each in self.live)


class TestTables(Tables.TestCase):
    settings = settings(deadline=None, max_examples=60)


def test_ended_checkpoints_leave_the_heaps():
    """The first one stays open, and 10,000 after it come and go."""
    clock = [0]
    table, queue = new_table(clock), PopQueue("T", "G", 0, 0)
    oldest = Checkpoint(queue, 0, 0, 60_000, 0, (0,), 0)
    table.add(oldest)
    for number in range(1, 10_000):
        each = Checkpoint(queue, number, 0, 60_000, 0, (number,), 0)
        table.add(each)
        table.end(each)
    assert (table.count, queue.count, queue.first_open) == (1, 1, 0)
    assert sys.getrefcount(queue) < 3_000  # each checkpoint in a heap refers to it
    clock[0] = 60_000
    assert table.take_due(60_000) is oldest
    assert table.take_due(60_000) is None


def test_ended_checkpoints_are_removed_in_rounds():
    """57,000 acked messages: their removal in one call delayed all clients by 6 ms."""
    clock, queue = [1_000], PopQueue("T", "G", 0, 0)
    table = new_table(clock)
    checkpoints = [
        Checkpoint(queue, start, 1_000, 10, 0, (start,), 0) for start in range(3_500)
    ]
    for checkpoint in checkpoints:
        table.add(checkpoint)
        table.add_young(checkpoint)
    *ended, last = checkpoints
    for checkpoint in ended:
        table.end(checkpoint)
    clock[0] += STAY_MS
    assert [table.take_due(clock[0]) for _ in range(3)] == [None] * 3
    assert table.next_due_ms() == 1_010
    assert table.take_due(clock[0]) is last
    assert [table.next_young_ms() for _ in range(3)] == [0] * 3
    assert table.take_young(clock[0]) is last
    assert table.next_due_ms() is table.next_young_ms() is None


@pytest.mark.parametrize("seed", range(5))
def test_a_heap_keeps_its_order_while_ended_checkpoints_leave_it(seed):
    """Of 4,000 checkpoints 3,900 end; 2,000 more, which end too, sweep the heaps."""
    chance, clock, queue = Random(seed), [1_000], PopQueue("T", "G", 0, 0)
    table = new_table(clock)

    def add(start):
        ms = chance.randrange(1_000, 60_000)
        checkpoint = Checkpoint(queue, start, 1_000, ms, 0, (start,), 0)
        table.add(checkpoint)
        return checkpoint

    live = list(map(add, range(4_000)))
    chance.shuffle(live)
    while len(live) > 100:
        table.end(live.pop())
    assert sys.getrefcount(queue) > 4_000  # each checkpoint in a heap refers to it
    for start in range(4_000, 6_000):
        table.end(add(start))
    assert sys.getrefcount(queue) < 2_500
    wanted = sorted(live, key=lambda each: (each.due_ms, each.start))
    clock[0] = 70_000
    taken = list(iter(lambda: take(table, 70_000), None))
    assert taken == wanted


def take(table, now_ms):
    """The next due checkpoint, after all that have ended."""
    while (found := table.take_due(now_ms)) is None and table.next_due_ms() == 0:
        pass
    return found


def test_the_clock_that_is_set_back_delays_nobody():
    clock = [1_000]
    table = new_table(clock)
    far = Checkpoint(PopQueue("T", "G", 0, 0), 0, 9_000_000, 50, 0, (0,), 0)
    table.add(far)
    assert table.next_due_ms() == 1_050


@pytest.mark.parametrize("is_gone", [False, True])
def test_the_end_of_a_table_frees_its_checkpoints(is_gone):
    class Owner:
        """A callback that dies with the table."""

        def call(self, value):
            pass

    owner = Owner()
    seen = weakref.ref(owner)
    table = CheckpointTable(
        TailSet(), on_acks=owner.call, on_touched=owner.call, on_wake=owner.call,
        clock_ms=int, steady_ms=int,
    )  # fmt: skip
    owner.table = table
    queue = table.queues["T", "G", 0] = PopQueue("T", "G", 0, 0)
    for start in range(100):
        table.add(Checkpoint(queue, start, 0, 60_000, 0, (start,), 0))
    queue.is_gone = is_gone
    assert queue.first_open == 0
    del table, queue, owner
    gc.collect()
    assert seen() is None
