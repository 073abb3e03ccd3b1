"""Committed offsets: query, update, what counts as not found."""

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode

QUEUE = {"consumerGroup": "G", "topic": "T", "queueId": 0}


@pytest.fixture
def group(caller):
    caller.broker.groups.find("G")
    return caller


def test_committed_offset_is_answered(group):
    assert (
        group.call(
            RequestCode.UPDATE_CONSUMER_OFFSET, {**QUEUE, "commitOffset": 7}
        ).code
        == 0
    )
    answer = group.call(RequestCode.QUERY_CONSUMER_OFFSET, QUEUE)
    assert (answer.code, answer.ext_fields) == (0, {"offset": "7"})


def test_going_backwards_is_allowed(group):
    group.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**QUEUE, "commitOffset": 7})
    group.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**QUEUE, "commitOffset": 3})
    assert group.call(RequestCode.QUERY_CONSUMER_OFFSET, QUEUE).ext_fields == {
        "offset": "3"
    }


def test_new_group_on_a_young_queue_begins_at_zero(group):
    group.send()
    assert group.call(RequestCode.QUERY_CONSUMER_OFFSET, QUEUE).ext_fields == {
        "offset": "0"
    }


def test_new_group_on_a_young_queue_that_is_not_to_begin_at_zero(group):
    group.send()
    answer = group.call(
        RequestCode.QUERY_CONSUMER_OFFSET, {**QUEUE, "setZeroIfNotFound": "false"}
    )
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark.startswith("Not found, do not set to zero")


def test_empty_queue_is_not_found(group):
    answer = group.call(RequestCode.QUERY_CONSUMER_OFFSET, QUEUE)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark.startswith("Not found, V3_0_6_SNAPSHOT")


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "No"}, 17, "Topic No not exist!"),
        ({"topic": "../../x"}, 17, "Topic ../../x not exist!"),
        ({"topic": None}, 17, "Topic None not exist!"),
        ({"consumerGroup": "Nobody"}, 26, "Group Nobody not exist!"),
        ({"consumerGroup": None}, 26, "Group None not exist!"),
        ({"queueId": None}, 29, "QueueId is null, topic is T"),
        ({"commitOffset": None}, 29, "Offset is null, topic is T"),
        ({"queueId": -1}, 29, "QueueId[-1] is illegal"),
        ({"queueId": 65_536}, 29, "QueueId[65536] is illegal"),
        ({"commitOffset": "x"}, 1, "commitOffset"),
    ],
)
def test_refused_update(group, fields, code, remark):
    wanted = {**QUEUE, "commitOffset": 1, **fields}
    answer = group.call(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {k: v for k, v in wanted.items() if v is not None},
    )
    assert answer.code == code
    assert remark in answer.remark


def test_query_for_strangers(group):
    assert (
        group.call(
            RequestCode.QUERY_CONSUMER_OFFSET, {**QUEUE, "topic": "../../x"}
        ).code
        == ResponseCode.QUERY_NOT_FOUND
    )
    assert (
        group.call(RequestCode.QUERY_CONSUMER_OFFSET, {**QUEUE, "queueId": -1}).code
        == ResponseCode.QUERY_NOT_FOUND
    )
    assert (
        group.call(RequestCode.QUERY_CONSUMER_OFFSET, {"topic": "T", "queueId": 0}).code
        == ResponseCode.SYSTEM_ERROR
    )
