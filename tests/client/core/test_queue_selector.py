"""Which queue a message goes to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.client.sending import RoundRobin
from rmq.client.core.queue_selector import index_of_key
from rmq.client.core.routes import MessageQueue

QUEUES = [MessageQueue("T", broker, i) for broker in "ab" for i in range(2)]


@given(st.integers(0, 9))
def test_one_after_another_from_any_on(first):
    choice = RoundRobin(QUEUES, first)
    assert [choice.next() for _ in QUEUES] == [(first + i) % 4 for i in range(4)]
    assert choice.next_index == first % 4


@given(st.integers(0, 9), st.sampled_from("ab"))
def test_another_broker_if_there_is_one(first, broker):
    choice = RoundRobin(QUEUES, first)
    assert all(QUEUES[choice.next(avoid=broker)].broker != broker for _ in range(9))
    alone = RoundRobin(QUEUES[:2], first)
    assert {alone.next(avoid="a") for _ in range(2)} == {0, 1}


@pytest.mark.parametrize(
    ("key", "index"),
    # "…".hashCode() % count by Java; the last hash is -2147483648
    [("account", 3), ("42", 2), ("polygenelubricants", 0), ("", 0)],
)
def test_a_key_meets_the_same_queue_as_in_java(key, index):
    assert index_of_key(key, 4) == index


@given(st.text(), st.integers(1, 99))
def test_a_key_has_a_queue(key, count):
    assert 0 <= index_of_key(key, count) < count
