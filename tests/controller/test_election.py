from hypothesis import given
from hypothesis import strategies as st

from rmq.controller.election import Alive, Live, choose


def heard(**lives):
    return Alive({int(name[1:]): Live(*live) for name, live in lives.items()})


def test_the_old_master_stays_while_it_lives():
    alive = heard(b1=(1, 10, 0), b2=(1, 99, 0))
    assert choose((1, 2), 1, None, alive) == 1
    assert choose((1, 2), 1, 1, alive) == 1


def test_an_old_master_that_may_live_stays():
    alive = Alive({2: Live(1, 10, 0)}, assumed={1})
    assert choose((1, 2), 1, None, alive) == 1


def test_a_dead_master_is_replaced_by_the_newest_epoch_then_the_longest_log():
    alive = heard(b2=(3, 10, 0), b3=(2, 99, 0), b4=(3, 11, 9))
    assert choose((1, 2, 3, 4), 1, None, alive) == 4


def test_logs_that_differ_by_more_than_32_bits_can_tell():
    alive = heard(b1=(1, 0, 0), b2=(1, 3 * 2**30, 0), b3=(1, 6 * 2**30, 0))
    assert choose((1, 2, 3), None, None, alive) == 3


def test_of_equal_logs_the_smaller_priority_wins_then_the_smaller_id():
    assert choose((1, 2), None, None, heard(b1=(1, 5, 7), b2=(1, 5, 3))) == 2
    assert choose((1, 2), None, None, heard(b1=(1, 5, 3), b2=(1, 5, 3))) == 1


def test_a_wanted_broker_or_none():
    alive = heard(b1=(1, 10, 0), b2=(1, 5, 0))
    assert choose((1, 2), 1, 2, alive) == 2
    assert choose((1,), 1, 2, alive) is None
    assert choose((1, 2, 3), 1, 3, alive) is None


def test_nobody_is_elected_who_was_not_heard():
    assert choose((2, 3), 1, None, Alive({}, assumed={2, 3})) is None


@given(st.permutations([1, 2, 3, 4]))
def test_the_order_of_candidates_does_not_matter(ids):
    alive = heard(b1=(1, 5, 1), b2=(1, 5, 1), b3=(0, 9, 0), b4=(1, 4, 0))
    assert choose(ids, None, None, alive) == 1
