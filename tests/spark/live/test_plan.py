"""Positions, limits and bundles of live reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.core.errors import ConfigError
from rmq_spark.live.plan import (
    Bounds,
    MessageQueue,
    QueueRange,
    check_position,
    limit_ends,
    offset_of,
    plan_bundles,
    positions_of,
)
from rmq_spark.segments.commit_log import LostData

QUEUES = [
    MessageQueue(topic, broker, number)
    for topic in ("A", "B")
    for broker in ("broker-a", "broker-b")
    for number in (0, 1, 10)
]
queues = st.sampled_from(QUEUES)
numbers = st.integers(0, 10_000)


@given(st.dictionaries(queues, numbers))
def test_an_offset_and_its_positions(positions):
    offset = offset_of(positions)
    assert positions_of(offset) == positions
    assert list(offset) == sorted(offset)


@pytest.mark.parametrize("offset", [{"broker-a": 5}, {"T": {"b": 5}}, {"T": 1.5}])
def test_a_checkpoint_of_segments_is_refused(offset):
    with pytest.raises(ConfigError, match="use another checkpointLocation"):
        positions_of(offset)


@given(
    st.dictionaries(queues, st.tuples(numbers, numbers), min_size=1),
    st.integers(1, 20_000),
)
def test_a_limit_is_shared_by_lag(ranges, rows):
    starts = {queue: start for queue, (start, _) in ranges.items()}
    ends = {queue: start + lag for queue, (start, lag) in ranges.items()}
    found = limit_ends(starts, ends, rows)
    taken = {queue: found[queue] - starts[queue] for queue in found}
    assert all(starts[queue] <= found[queue] <= ends[queue] for queue in ends)
    assert all(taken[queue] for queue, (_, lag) in ranges.items() if lag)
    assert sum(taken.values()) <= rows + len(ranges)
    assert limit_ends(starts, ends, None) == ends


@given(
    st.dictionaries(queues, st.tuples(numbers, numbers)),
    st.integers(1, 3_000),
    st.none() | st.integers(1, 9),
)
def test_bundles_have_every_offset_once(ranges, rows, least):
    wanted = [QueueRange(queue, at, at + lag) for queue, (at, lag) in ranges.items()]
    found = plan_bundles(wanted, rows, least)
    total = sum(lag for _, lag in ranges.values())
    sizes = [sum(r.end - r.start for r in bundle.ranges) for bundle in found]
    assert sum(sizes) == total
    assert all(0 < size <= rows for size in sizes)
    if least is not None and total >= least:
        assert len(found) >= min(least, total // max(1, -(-total // least)))
    for queue, (at, lag) in ranges.items():
        parts = [r for bundle in found for r in bundle.ranges if r.queue == queue]
        assert [r.start for r in parts[1:]] == [r.end for r in parts[:-1]]
        assert not lag or (parts[0].start, parts[-1].end) == (at, at + lag)
    for bundle in found:
        assert {r.queue.broker for r in bundle.ranges} == {bundle.broker}


@pytest.mark.parametrize(
    ("position", "text"),
    [(4, "offsets 4 to 5 were removed"), (10, "position 10 is after the end 9")],
)
def test_loss_is_an_error_or_a_text(position, text):
    queue = QUEUES[0]
    with pytest.raises(LostData, match=f"queue 0 of topic A on broker-a: {text}"):
        check_position(position, Bounds(5, 9), queue, fails=True)
    found, told = check_position(position, Bounds(5, 9), queue, fails=False)
    assert found == 5
    assert text in told


@pytest.mark.parametrize("position", [5, 7, 9])
def test_no_loss(position):
    assert check_position(position, Bounds(5, 9), QUEUES[0], fails=True) == (
        position,
        "",
    )
