import os
import select
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.log.watermark import Watermark


def is_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_value_is_the_largest_seen(values):
    watermark = Watermark()
    highest = 0
    for value in values:
        assert watermark.advance(value) == (value > highest)
        highest = max(highest, value)
        assert watermark.value == highest


def test_reset_goes_down():
    watermark = Watermark(100)
    watermark.reset(7)
    assert watermark.value == 7
    is_advanced = watermark.advance(8)
    assert is_advanced


def test_each_subscriber_is_woken_by_a_move_and_only_by_a_move():
    watermark = Watermark(5)
    descriptors = [watermark.subscribe() for _ in range(2)]
    watermark.advance(5)
    assert not any(map(is_readable, descriptors))
    watermark.advance(6)
    watermark.advance(7)
    for descriptor in descriptors:
        assert is_readable(descriptor)
        assert os.eventfd_read(descriptor) == 2
        assert not is_readable(descriptor)


def test_subscribers_are_limited_and_places_are_reused():
    watermark = Watermark()
    descriptors = [watermark.subscribe() for _ in range(8)]
    with pytest.raises(RuntimeError, match="at most 8"):
        watermark.subscribe()
    watermark.unsubscribe(descriptors[3])
    again = watermark.subscribe()
    assert again not in {*descriptors[:3], *descriptors[4:]}
    is_advanced = watermark.advance(1)
    assert is_advanced


def test_unsubscribe_closes_only_its_own():
    watermark = Watermark()
    descriptor = watermark.subscribe()
    watermark.unsubscribe(descriptor)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)
    for stranger in (descriptor, 0, -1):
        with pytest.raises(ValueError, match="not a subscriber"):
            watermark.unsubscribe(stranger)


def test_descriptors_are_closed_with_the_watermark():
    watermark = Watermark()
    descriptor = watermark.subscribe()
    del watermark
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)


def test_failed_construction_closes_nothing():
    before = os.fstat(0)
    with pytest.raises(TypeError):
        Watermark("much")
    assert os.fstat(0) == before


def test_threads_that_race_leave_the_largest_value():
    watermark = Watermark()
    descriptor = watermark.subscribe()
    moves = []

    def climb(start: int) -> None:
        moves.append(sum(watermark.advance(v) for v in range(start, 5_000, 4)))

    threads = [threading.Thread(target=climb, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert watermark.value == 4_999
    assert os.eventfd_read(descriptor) == sum(moves)


def test_demands_are_one_until_somebody_takes_them():
    watermark = Watermark()
    watermark.request_advance()
    watermark.request_advance()
    assert watermark.wait_for_request()
    watermark.end_wait()
    assert not watermark.wait_for_request(), "the second demand was part of the first"


def test_who_waits_for_a_demand_leaves_the_interpreter_to_others():
    watermark, answers = Watermark(), []

    def follow() -> None:
        while watermark.wait_for_request():
            watermark.advance(watermark.value + 1)
        answers.append(watermark.value)

    descriptor = watermark.subscribe()
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    for wanted in range(1, 1_000):
        watermark.request_advance()
        assert select.select([descriptor], [], [], 5)[0]
        assert os.eventfd_read(descriptor) == 1
        assert watermark.value == wanted
    watermark.end_wait()
    thread.join(5)
    assert answers == [999]


def test_the_end_is_told_once_and_a_demand_before_it_is_not_lost_to_a_successor():
    watermark = Watermark()
    watermark.request_advance()
    watermark.end_wait()
    assert not watermark.wait_for_request()
    watermark.request_advance()
    assert watermark.wait_for_request()


@given(
    moves=st.lists(st.tuples(st.booleans(), st.integers(0, 20))),
    first=st.integers(0, 5),
    second=st.integers(0, 5),
)
def test_the_lesser_of_two_is_where_both_are(moves, first, second):
    one, other = Watermark(first), Watermark(second)
    joint = Watermark.minimum_of(one, other)
    for is_one, value in moves:
        (one if is_one else other).advance(value)
        assert joint.value == min(one.value, other.value)


def test_subscribers_of_the_lesser_are_woken_when_it_moves():
    one, other = Watermark(), Watermark()
    joint = Watermark.minimum_of(one, other)
    descriptor = joint.subscribe()
    one.advance(10)
    assert not is_readable(descriptor)
    other.advance(5)
    assert is_readable(descriptor)
    assert joint.value == 5


def test_a_demand_for_the_lesser_goes_to_both():
    one, other = Watermark(), Watermark()
    Watermark.minimum_of(one, other).request_advance()
    assert one.wait_for_request()
    assert other.wait_for_request()


def test_a_watermark_is_part_of_one_other_at_most():
    one = Watermark()
    Watermark.minimum_of(one, Watermark())
    with pytest.raises(ValueError, match="at most one other"):
        Watermark.minimum_of(one, Watermark())
    with pytest.raises(ValueError, match="at most one other"):
        Watermark.minimum_of(alone := Watermark(), alone)


def test_two_threads_that_move_both_leave_no_gap():
    for _ in range(200):
        one, other = Watermark(), Watermark()
        joint = Watermark.minimum_of(one, other)
        threads = [
            threading.Thread(target=lambda w=w: [w.advance(n) for n in range(1, 50)])
            for w in (one, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert joint.value == 49
