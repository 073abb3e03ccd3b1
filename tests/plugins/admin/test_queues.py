"""The ends of a queue, and its offset at a time."""

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode

QUEUE = {"topic": "T", "queueId": 0}


@pytest.fixture
def five(caller, clock):
    """Five messages, ten milliseconds apart."""
    for _ in range(5):
        caller.send()
        clock.ms += 10
    return caller


def test_ends_of_a_queue(five):
    assert five.call(RequestCode.GET_MAX_OFFSET, QUEUE).ext_fields == {"offset": "5"}
    assert five.call(RequestCode.GET_MIN_OFFSET, QUEUE).ext_fields == {"offset": "0"}


@pytest.mark.parametrize(
    "queue",
    [
        {"topic": "T", "queueId": 9},
        {"topic": "T", "queueId": -1},
        {"topic": "No", "queueId": 0},
        {"topic": "../../x", "queueId": 0},
    ],
)
def test_queue_without_messages(caller, queue):
    for code, more in ((30, {}), (31, {}), (29, {"timestamp": 0})):
        answer = caller.call(code, {**queue, **more})
        assert (answer.code, answer.ext_fields) == (0, {"offset": "0"})


def test_a_queue_of_batches_without_messages_begins_before_the_first(caller):
    caller.topic("B", attributes={"queue.type": "BatchCQ"})
    queue = {"topic": "B", "queueId": 0}
    for code, more, offset in (
        (30, {}, "0"),
        (31, {}, "-1"),
        (29, {"timestamp": 0}, "-1"),
    ):
        answer = caller.call(code, {**queue, **more})
        assert (answer.code, answer.ext_fields) == (0, {"offset": offset})
    missed = caller.broker.store.statistics().get_missed
    answer = caller.pull("B")
    assert (answer.code, answer.remark) == (19, "NO_MESSAGE_IN_QUEUE")
    assert answer.ext_fields["minOffset"] == "-1"
    assert caller.broker.store.statistics().get_missed == missed + 1


@pytest.mark.parametrize(
    ("after_ms", "boundary", "offset"),
    [
        (0, "LOWER", "0"),
        (20, "LOWER", "2"),
        (21, "LOWER", "3"),
        (21, None, "3"),
        (21, "nonsense", "3"),
        (21, "UPPER", "2"),
        (21, "upper", "2"),
        (-1, "UPPER", "0"),
        (10**6, "LOWER", "5"),
        (10**6, "UPPER", "4"),
    ],
)
def test_offset_by_time(five, clock, after_ms, boundary, offset):
    fields = {**QUEUE, "timestamp": clock.ms - 50 + after_ms}
    if boundary is not None:
        fields["boundaryType"] = boundary
    assert five.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields).ext_fields == {
        "offset": offset
    }


def test_lite_topics_have_no_messages(five, clock):
    fields = {**QUEUE, "timestamp": clock.ms, "liteTopic": "x"}
    assert five.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields).ext_fields == {
        "offset": "0"
    }


@pytest.mark.parametrize("code", [29, 30, 31])
def test_missing_field_is_named(caller, code):
    answer = caller.call(code, {"topic": "T", "timestamp": 0})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "queueId" in answer.remark
