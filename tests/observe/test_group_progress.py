"""Rates, waits and marks of one queue against every message's own time."""

from hypothesis import given
from hypothesis import strategies as st

from rmq.observe.group_progress import MAX_MARKS, QueueProgress


def started(now_ms=1_000, offset=0, end=0):
    return QueueProgress(
        now_ms, offset, end, still_since_ms=now_ms, rate_ms=now_ms,
        rate_offset=offset, rate_end=end,
    )  # fmt: skip


def test_rates_are_over_some_seconds():
    progress = started()
    progress.move(3_000, 10, 100)
    assert progress.done_per_s is None
    progress.move(11_000, 50, 200)
    assert (progress.done_per_s, progress.arriving_per_s) == (5.0, 20.0)


def test_an_offset_that_stands_still():
    progress = started(offset=5, end=9)
    for now_ms in range(2_000, 72_000, 10_000):
        progress.move(now_ms, 5, 9)
    assert 62_000 - progress.still_since_ms >= 60_000
    progress.move(72_000, 6, 9)
    assert progress.still_since_ms == 72_000


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=60))
def test_waits_are_a_lower_bound_and_never_lose_half_of_the_time(steps):
    progress, now_ms = started(0), 0
    stored: list[int] = []
    done = 0
    seen: list[int] = []
    for came, finished in steps:
        now_ms += 10_000
        stored += [now_ms] * came
        done = min(len(stored), done + finished)
        progress.move(now_ms, done, len(stored))
        seen.append(len(stored))
        true_ms = now_ms - stored[done] if done < len(stored) else 0
        assert progress.waits_ms(now_ms) <= true_ms
        assert (progress.waits_ms(now_ms) > 0) <= (done < len(stored))
        assert len(progress.marks) <= MAX_MARKS
    first = next((n for n, end in enumerate(seen) if end > done), None)
    if first == 0 and seen[-1] > done and done == 0:
        assert progress.waits_ms(now_ms) == now_ms - 10_000
