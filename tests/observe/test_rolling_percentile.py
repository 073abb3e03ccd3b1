"""The 99th percentile of a minute: the bound that it kept."""

from rmq.observe.rolling_percentile import MAX_SAMPLES, Lately


def test_the_bound_that_99_percent_kept():
    lately = Lately((1, 3, 5))
    assert lately.p99_ms() is None
    lately.sample(0, (50, 0, 0, 9))
    assert lately.p99_ms() is None, "what was before the first look does not count"
    lately.sample(10_000, (149, 1, 0, 9))
    assert lately.p99_ms() == 1
    lately.sample(20_000, (149, 2, 0, 9))
    assert lately.p99_ms() == 3
    lately.sample(30_000, (149, 2, 0, 99))
    assert lately.p99_ms() == 6


def test_it_forgets_what_is_older_than_a_minute():
    lately = Lately((1, 3))
    lately.sample(0, (0, 0, 0))
    for second in range(1, 200):
        lately.sample(second * 1_000, (second, 0, 7))
        slow = second < 65
        assert (lately.p99_ms() == 4) is slow, second
    lately.sample(300_000, (199, 0, 7))
    lately.sample(400_000, (199, 0, 7))
    assert lately.p99_ms() is None


def test_a_clock_that_goes_back():
    lately = Lately((1, 3))
    for number in range(100):
        lately.sample(1_000_000 - number * 1_000, (number, 0, 0))
    assert lately.p99_ms() == 1
    assert len(lately._samples) <= MAX_SAMPLES
