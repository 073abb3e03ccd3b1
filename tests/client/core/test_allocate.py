"""Shares of a group: equal to Java's, and no queue with two owners."""

from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.allocate import (
    allocate_average,
    allocate_in_circle,
    java_order,
    sorted_queues,
)
from rmq.client.core.routes import MessageQueue


def members(count):
    return sorted((f"10.0.0.{i}@{i}" for i in range(count)), key=java_order)


def queues(count):
    return [MessageQueue("T", "b", i) for i in range(count)]


def java_average(me, ids, mqs):
    """By Java's arithmetic, which has other steps."""
    index = ids.index(me)
    mod = len(mqs) % len(ids)
    if len(mqs) <= len(ids):
        size = 1
    elif mod > 0 and index < mod:
        size = len(mqs) // len(ids) + 1
    else:
        size = len(mqs) // len(ids)
    start = index * size if mod > 0 and index < mod else index * size + mod
    count = min(size, len(mqs) - start)
    return [mqs[(start + i) % len(mqs)] for i in range(max(count, 0))]


def test_average_is_javas():
    for count in range(1, 10):
        ids = members(count)
        for mqs in map(queues, range(41)):
            for me in ids:
                assert allocate_average(me, ids, mqs) == java_average(me, ids, mqs)


@given(
    st.integers(1, 9),
    st.integers(0, 40),
    st.sampled_from([allocate_average, allocate_in_circle]),
)
def test_each_queue_has_one_owner(count, size, strategy):
    shares = [strategy(me, members(count), queues(size)) for me in members(count)]
    assert sorted(each for share in shares for each in share) == queues(size)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_a_stranger_has_nothing():
    assert (
        allocate_average("x", members(2), queues(4))
        == allocate_in_circle("x", members(2), queues(4))
        == []
    )


def test_java_sorts_by_utf_16_units():
    mqs = [MessageQueue("T", name, 0) for name in ("\uffff", "\U0001f600", "a")]
    assert [each.broker for each in sorted_queues(mqs)] == ["a", "\U0001f600", "\uffff"]
    assert sorted_queues([MessageQueue("T", "a", i) for i in (10, 9)])[0].queue_id == 9
