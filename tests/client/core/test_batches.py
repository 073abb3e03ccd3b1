"""Batches: nothing is lost, no bound is crossed, nothing is older than linger."""

from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.batches import ITEM_SIZE, Accumulator, Sized, split

LIMITS = st.builds(Sized, st.integers(1, 5), st.integers(30, 200))
SIZES = st.lists(st.integers(0, 100), max_size=30)


def check(batches, limits):
    for batch in batches:
        assert 0 < len(batch) <= limits.max_count
        size = sum(size + ITEM_SIZE for _, size in batch)
        assert len(batch) == 1 or size <= limits.max_bytes


@given(SIZES, LIMITS)
def test_a_list_is_cut(sizes, limits):
    items = list(enumerate(sizes))
    parts = list(split([(item, item[1]) for item in items], limits))
    assert [item for part, _ in parts for item in part] == items
    check([part for part, _ in parts], limits)
    assert [size for _, size in parts] == [
        sum(size + ITEM_SIZE for _, size in part) for part, _ in parts
    ]


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 8), st.booleans())), LIMITS
)
def test_messages_gather(steps, limits):
    gathering = Accumulator(limits, 10)
    now_ms, added, left = 0.0, {}, []
    for number, (size, pause_ms, is_withdrawn) in enumerate(steps):
        now_ms += pause_ms
        due = [gathering.due(now_ms)]
        added[number, size] = now_ms
        full = gathering.add((number, size), size, lambda now_ms=now_ms: now_ms)
        for batch in filter(None, [*due, *full]):
            check([batch], limits)
            assert all(now_ms - added[each] <= 10 + 8 for each in batch)
            left += batch
        if is_withdrawn:
            was_there = (number, size) not in left
            assert gathering.withdraw((number, size), size) == was_there
            if was_there:
                del added[number, size]
        assert gathering.leaves_at_ms is None or gathering.leaves_at_ms > now_ms
    assert left + gathering.take() == list(added)
    assert gathering.leaves_at_ms is None
    assert gathering.due(1e9) == []
