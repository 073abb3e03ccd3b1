"""Where two logs part, and whether a replica cuts what its master does not have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.cluster.divergence import KEY, RESEED_KEY, Divergence, count_equal
from rmq.cluster.log_source import LogBounds

LIMIT = 1 << 20


@given(
    st.integers(0, 5_000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
)
def test_it_is_found_with_few_questions(pair):
    count, equal = pair
    asked = []

    def ask():
        search = count_equal(count)
        number = next(search)
        while True:
            asked.append(number)
            number = search.send(number < equal)

    with pytest.raises(StopIteration) as found:
        ask()
    assert found.value.value == equal
    assert all(0 <= number < count for number in asked)
    assert len(asked) <= 13


def refusal(offset, end, bounds, **more):
    more = {"is_promised": False, "may_discard": False} | more
    return Divergence(offset, end, bounds, LIMIT).cut_refusal(**more)


def test_a_fork_that_nobody_was_promised_is_cut():
    assert not refusal(500, 900, LogBounds(0, 700))
    assert "have been acknowledged" in refusal(
        500, 900, LogBounds(0, 700), is_promised=True
    )


def test_what_the_master_lost_is_kept():
    for is_promised in (False, True):
        sentence = refusal(500, 900, LogBounds(0, 500), is_promised=is_promised)
        assert "Make this broker the master" in sentence


def test_the_operator_may_discard_both():
    for end in (500, 700):
        bounds = LogBounds(0, end)
        assert not refusal(500, 900, bounds, is_promised=True, may_discard=True)


def test_nobody_may_discard_a_log_with_nothing_in_common():
    for bounds in (LogBounds(0, 700), LogBounds(2_000, 3_000)):
        assert refusal(-1, 900, bounds, may_discard=True)


@pytest.mark.parametrize(
    ("offset", "bounds", "keys"),
    [
        (-1, LogBounds(0, 900), {"may_reseed"}),
        (-1, LogBounds(0, 899), {"may_reseed", "may_discard"}),
        (-1, LogBounds(901, 2_000), {"may_reseed"}),
        (500, LogBounds(901, 2_000), {"may_reseed"}),
        (500, LogBounds(0, 900), None),
        (500, LogBounds(0, 500), None),
    ],
)
def test_a_log_is_set_aside_if_all_keys_allow_it(offset, bounds, keys):
    fork = Divergence(offset, 900, bounds, LIMIT)
    for named in ({"may_reseed"}, {"may_discard"}, {"may_reseed", "may_discard"}):
        allowed = {name: name in named for name in ("may_reseed", "may_discard")}
        is_wanted = keys is not None and keys <= named
        assert fork.must_reseed(**allowed) == is_wanted, named
    sentence = fork.cut_refusal(is_promised=False, may_discard=False)
    for name, key in (("may_reseed", RESEED_KEY), ("may_discard", KEY)):
        if keys is not None:
            assert (key in sentence) == (name in keys)


def test_it_stays_while_the_master_only_grows():
    fork = Divergence(500, 900, LogBounds(0, 700), LIMIT)
    assert fork.is_still_valid(LogBounds(0, 700))
    assert fork.is_still_valid(LogBounds(100, 5_000))
    assert not fork.is_still_valid(LogBounds(0, 400))
    assert not fork.is_still_valid(LogBounds(600, 5_000))
    ahead = Divergence(500, 900, LogBounds(0, 500), LIMIT)
    assert ahead.is_still_valid(LogBounds(0, 500))
    assert not ahead.is_still_valid(LogBounds(0, 600))
