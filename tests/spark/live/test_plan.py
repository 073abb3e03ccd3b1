"""Positions, limits and bundles of live reads."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.core.errors import ConfigError
from rmq_spark.live.plan import (
    Bounds,
    MessageQueue,
    Place,
    QueueRange,
    check_log_offset,
    check_position,
    limit_ends,
    next_places,
    offset_of,
    places_of,
    places_to_prove,
    plan_bundles,
    starts_of,
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


places = st.builds(Place, numbers, st.none() | numbers, st.none() | numbers)


@given(st.dictionaries(queues, places))
def test_an_offset_and_its_places(known):
    offset = offset_of(known)
    assert places_of(json.loads(json.dumps(offset))) == known
    assert list(offset) == sorted(offset)


def test_a_place_without_a_log_offset_is_one_number():
    offset = {"A": {"broker-a": {"0": 7, "1": [7, 90], "10": [7, None, 3]}}}
    known = dict(zip(QUEUES, [Place(7), Place(7, 90), Place(7, None, 3)], strict=False))
    assert places_of(offset) == known
    assert offset_of(known) == offset


@pytest.mark.parametrize(
    "offset",
    [{"broker-a": 5}, {"T": {"b": 5}}, {"T": 1.5}, {"T": {"b": {"0": []}}},
     {"T": {"b": {"0": [1, 2, 3, 4]}}}],
)  # fmt: skip
def test_a_checkpoint_of_segments_is_refused(offset):
    with pytest.raises(ConfigError, match="use another checkpointLocation"):
        places_of(offset)


@given(st.dictionaries(queues, st.tuples(places, numbers, numbers)))
def test_a_batch_begins_and_ends_where_it_was_planned(planned):
    """Whatever a batch begins with, the places around it give its ranges."""
    before = {queue: place for queue, (place, _, _) in planned.items()}
    starts = {queue: start for queue, (_, start, _) in planned.items()}
    stops = {queue: start + lag for queue, (_, start, lag) in planned.items()}
    after = next_places(before, starts, stops, {})
    assert {queue: place.position for queue, place in after.items()} == stops
    found = starts_of(before, after)
    for queue in planned:
        assert starts[queue] == stops[queue] or found[queue] == starts[queue]
        assert found[queue] >= stops[queue] or found[queue] == starts[queue]


def test_a_batch_without_a_new_message_has_the_places_of_the_last():
    known = {QUEUES[0]: Place(5, 900, 2), QUEUES[1]: Place(3)}
    same = {QUEUES[0]: 5, QUEUES[1]: 3}
    assert next_places(known, same, same, {}) == known
    grown = next_places(known, same, same | {QUEUES[0]: 8}, {QUEUES[0]: 77})
    assert grown == known | {QUEUES[0]: Place(8, 77)}


def test_places_of_queues_with_new_messages_are_proved():
    known = {queue: Place(5, 900) for queue in QUEUES[:4]} | {QUEUES[4]: Place(5)}
    bounds = dict.fromkeys(QUEUES, Bounds(0, 9))
    bounds |= {QUEUES[1]: Bounds(0, 5), QUEUES[2]: Bounds(5, 9)}
    starts = dict.fromkeys(QUEUES, 5) | {QUEUES[3]: 6}
    assert places_to_prove(known, starts, bounds) == {QUEUES[0]: 5}


def test_another_message_before_a_position():
    queue, bounds = QUEUES[0], Bounds(2, 9)
    assert check_log_offset(Place(5, 90), 90, bounds, queue, fails=True) == (5, "")
    with pytest.raises(LostData, match="deleted and created again") as caught:
        check_log_offset(Place(5, 90), 91, bounds, queue, fails=True)
    assert "queue 0 of topic A on broker-a" in str(caught.value)
    start, text = check_log_offset(Place(5, 90), 91, bounds, queue, fails=False)
    assert start == 2
    assert "at 91 in the log, not at 90" in text


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
