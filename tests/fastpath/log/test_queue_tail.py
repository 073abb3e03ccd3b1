"""The end of a queue against a list of its entries."""

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath.log.queue_tail import SIZE_BOUNDS, QueueTail, TailSet
from tests.model.queue_scan import Entry

I64 = st.integers(-(2**63), 2**63 - 1)


@given(
    offset=st.integers(-(2**63), 2**63 - 2**31),
    size=st.integers(0, 2**31 - 1),
    code=I64,
)
def test_queue_entry_as_model(offset, size, code):
    queue = QueueTail("t", 0)
    queue.publish(1, 2, 3)
    assert queue.publish(offset, size, code) == 1
    expected = Entry(offset, size, code)
    assert queue.entry_in_memory(1) == expected
    assert queue.entries_in_memory(1, 9) == expected.encode()
    assert queue.end_physical == offset + size


STEP = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 40)),
    st.tuples(st.just("flush"), st.integers(0, 60)),
    st.tuples(st.just("cut"), st.integers(0, 20)),
    st.tuples(st.just("reserve"), st.integers(0, 300)),
)


@given(steps=st.lists(STEP, max_size=40))
@settings(max_examples=60)
def test_any_queue_as_a_list(steps):
    """Flushed entries may be in memory, unflushed ones must be."""
    tails = TailSet()
    queue, model, flushed = QueueTail("t", 0, tails), [], 0
    for step, number in steps:
        if step == "publish":
            for _ in range(number):
                entry = Entry(100 * len(model), 100, len(model))
                assert queue.publish(*entry) == len(model)
                model.append(entry)
        elif step == "flush":
            taken = tails.take_unflushed(1)
            assert taken == ([queue] if flushed < len(model) else [])
            data = b"".join(entry.encode() for entry in model[flushed:])
            assert queue.unflushed_entries(1_000_000) == data
            assert queue.unflushed_entries(number) == data[: number * 20]
            flushed = min(len(model), flushed + number)
            queue.mark_flushed(flushed)
            if flushed < len(model):
                tails.relist_unflushed(taken)
        elif step == "cut":
            end = max(0, len(model) - number)
            del model[end:]
            flushed = min(flushed, end)
            queue.truncate_to(end, 100 * end)
        else:
            queue.reserve(number)
        assert (queue.next_offset, queue.flushed_offset) == (len(model), flushed)
        for n, entry in enumerate(model):
            found = queue.entry_in_memory(n)
            assert found in ((entry,) if n >= flushed else (entry, None))
        assert queue.entry_in_memory(len(model)) is None


def test_a_flush_gives_memory_back_but_keeps_the_newest():
    queue = QueueTail("t", 0)
    for n in range(1_000):
        queue.publish(n, 1, 0)
    queue.mark_flushed(1_000)
    assert queue.entry_in_memory(991) is None
    assert queue.entry_in_memory(992) == (992, 1, 0)
    assert queue.entries_in_memory(995, 100) == b"".join(
        Entry(n, 1, 0).encode() for n in range(995, 1_000)
    )
    with pytest.raises(ValueError, match="flushed to 1001 of 1000"):
        queue.mark_flushed(1_001)


def test_many_entries_leave_memory_part_by_part():
    """Nothing was freed before a half, then the other half moved: 16 MB in 4 ms of the
    serving thread.
    """
    queue = QueueTail("t", 0)
    count = 100_000
    for flushed in (25_000, 62_345, 95_000, 99_997):
        while queue.next_offset < count:
            queue.publish(queue.next_offset, 1, 0)
        queue.mark_flushed(flushed)
        first = min(flushed, count - 8)
        assert queue.entry_in_memory(first - 1) is None
        assert queue.entries_in_memory(first, count) == b"".join(
            Entry(n, 1, 0).encode() for n in range(first, count)
        )
        count += 1_000


def test_many_entries_grow_shrink_and_end_early():
    queue = QueueTail("t", 0)
    entries = bytearray()
    rounds = [(30_000, 10_000, 30_000), (90_000, 70_000, 5), (20_000, 50_000, 9)]
    flushed = 0
    for published, cut, more in rounds:
        for step in (published, more):
            for n in range(queue.next_offset, queue.next_offset + step):
                queue.publish(n, 1, 7)
                entries += Entry(n, 1, 7).encode()
            end = max(flushed, queue.next_offset - cut)
            queue.truncate_to(end, end)
            del entries[end * 20 :]
            assert queue.unflushed_entries(1 << 30) == entries[flushed * 20 :]
        flushed = (flushed + queue.next_offset) // 2
        queue.mark_flushed(flushed)
        assert queue.unflushed_entries(1 << 30) == entries[flushed * 20 :]
    queue.mark_flushed(queue.next_offset)
    queue.publish(queue.next_offset, 1, 7)
    assert len(queue.unflushed_entries(1 << 30)) == 20


def test_a_loaded_queue_has_nothing_in_memory():
    queue = QueueTail("t", 0)
    queue.truncate_to(500, 7)
    assert (queue.next_offset, queue.flushed_offset, queue.end_physical) == (
        500,
        500,
        7,
    )
    assert queue.entry_in_memory(499) is None
    assert queue.unflushed_entries(10) == b""
    assert queue.publish(7, 1, 0) == 500
    assert queue.unflushed_entries(10) == Entry(7, 1, 0).encode()


def test_queues_are_listed_once_and_wait_for_enough():
    tails = TailSet()
    few, many = QueueTail("few", 0, tails), QueueTail("many", 0, tails)
    for _ in range(3):
        few.publish(0, 1, 0)
        many.publish(0, 1, 0)
        many.publish(0, 1, 0)
    assert tails.take_unflushed(4) == [many]
    many.publish(0, 1, 0)
    tails.relist_unflushed([many])
    assert set(tails.take_unflushed(1)) == {few, many}
    assert tails.take_unflushed(1) == []
    tails.relist_unflushed([few])
    few.is_deleted = True
    assert tails.take_unflushed(1) == []


def test_new_messages_are_counted_by_size():
    queue = QueueTail("t", 0)
    sizes = [1, *SIZE_BOUNDS, *(bound + 1 for bound in SIZE_BOUNDS)]
    for size in sizes:
        queue.publish(0, size, 0)
    counts = array("q", [1] * 7)
    assert queue.take_counts(counts) == (len(sizes), sum(sizes))
    assert list(counts) == [3, 3, 3, 3, 3, 3, 2]
    assert queue.take_counts(counts) == (0, 0)
    queue.publish(0, 5, 0)
    assert queue.take_counts(None) == (1, 5)


def test_the_first_message_is_the_lowest():
    queue = QueueTail("t", 0)
    queue.publish(70, 5, 0)
    queue.publish(75, 5, 0)
    assert (queue.low_offset, queue.low_physical) == (0, 70)


def test_queues_with_new_messages_are_listed_until_they_are_counted():
    queue = QueueTail("T", 0)
    others = [QueueTail("T", number, queue.tails) for number in range(1, 4)]
    for each in (queue, *others, queue):
        each.publish(0, 10, 0)
    assert queue.tails.uncounted_count == 4
    first, rest = queue.tails.take_uncounted(1), queue.tails.take_uncounted(9)
    assert set(first + rest) == {queue, *others}
    assert len(first) == 1
    assert queue.tails.take_uncounted(9) == []
    queue.publish(0, 10, 0)
    assert queue.tails.take_uncounted(9) == [queue]


def test_queues_with_messages_that_nobody_has_seen_are_given_once():
    tails = TailSet()
    one, other = QueueTail("A", 0, tails), QueueTail("B", 0, tails)
    for tail in (one, other, one):
        tail.publish(0, 100, 0)
    first, rest = tails.take_unseen(1), tails.take_unseen(9)
    assert [*first, *rest] == [other, one]
    assert tails.take_unseen(9) == []
    one.publish(100, 100, 0)
    assert tails.take_unseen(9) == [one]
