"""Batches: nothing is lost, no bound is crossed, no list is cut wrongly."""

from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.batches import ITEM_SIZE, BatchLimits, split

LIMITS = st.builds(BatchLimits, st.integers(1, 5), st.integers(30, 200))
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
