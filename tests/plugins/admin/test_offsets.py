"""Offsets of groups and queues as tools see them: 32, 43, 45, 303, 308, 314, 321."""

import json

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.fastjson import load_json
from rmq_plugins.schedule.deliver import Deliveries


def commit(caller, group, offset, *, topic="T", queue_id=0):
    fields = {
        "consumerGroup": group, "topic": topic, "queueId": queue_id,
        "commitOffset": offset,
    }  # fmt: skip
    caller.broker.groups.find(group)
    assert caller.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0


def offset(caller, group, *, topic="T", queue_id=0):
    return caller.broker.offsets.query(group, topic, queue_id)


@pytest.fixture
def filled(caller, clock):
    """Six messages in queue 0 of T, one second apart."""
    for _ in range(6):
        clock.ms += 1_000
        caller.send(properties="TAGS\x01a\x02")
    return caller


def test_earliest_store_time(filled, clock):
    answer = filled.call(
        RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "T", "queueId": 0}
    )
    assert answer.ext_fields == {"timestamp": str(clock.ms - 5_000)}
    answer = filled.call(
        RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "T", "queueId": 1}
    )
    assert answer.ext_fields == {"timestamp": "-1"}


def test_all_committed_offsets(filled):
    commit(filled, "G", 4)
    commit(filled, "G", 2, queue_id=1)
    commit(filled, "H", 3)
    body = json.loads(filled.call(RequestCode.GET_ALL_CONSUMER_OFFSET).body)
    assert body["offsetTable"] == {"T@G": {"0": 4, "1": 2}, "T@H": {"0": 3}}
    assert body["groupTopicMap"] == {"G": ["T"], "H": ["T"]}


def test_delay_offsets(filled):
    filled.send(properties="DELAY\x013\x02")
    filled.find(Deliveries).offsets.set(3, 17)
    body = json.loads(filled.call(RequestCode.GET_ALL_DELAY_OFFSET).body)
    assert body["offsetTable"] == {"3": 17}
    facts = json.loads(filled.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert facts["scheduleMessageOffset_3"] == "17,1"


def test_a_level_is_shown_before_it_has_delivered(filled):
    filled.send(properties="DELAY\x0118\x02")
    facts = json.loads(filled.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert facts["scheduleMessageOffset_18"] == "0,1"
    assert "scheduleMessageOffset_17" not in facts


def test_correction_is_the_least_of_the_groups_ahead(filled):
    for group, place in (("A", 5), ("B", 3), ("C", 1)):
        commit(filled, group, place)
    fields = {"topic": "T", "compareGroup": "A"}
    assert load_json(filled.call(RequestCode.QUERY_CORRECTION_OFFSET, fields).body) == {
        "correctionOffsets": {"0": 1}
    }
    fields = {**fields, "filterGroups": "C"}
    assert load_json(filled.call(RequestCode.QUERY_CORRECTION_OFFSET, fields).body) == {
        "correctionOffsets": {"0": 3}
    }
    assert offset(filled, "C") == 1, "Java forgets the groups that are filtered"


def test_correction_of_a_group_behind(filled):
    commit(filled, "A", 1)
    commit(filled, "B", 4)
    fields = {"topic": "T", "compareGroup": "A", "filterGroups": "A"}
    body = load_json(filled.call(RequestCode.QUERY_CORRECTION_OFFSET, fields).body)
    assert body == {"correctionOffsets": {"0": (1 << 63) - 1}}


def test_clone_of_one_topic(filled):
    filled.topic("U")
    commit(filled, "G", 4)
    commit(filled, "G", 2, topic="U")
    fields = {"srcGroup": "G", "destGroup": "N", "topic": "T", "offline": "true"}
    assert filled.call(RequestCode.CLONE_GROUP_OFFSET, fields).code == 0
    assert (offset(filled, "N"), offset(filled, "N", topic="U")) == (4, -1)
    assert offset(filled, "G") == 4


def test_clone_of_all_topics(filled):
    filled.topic("U")
    commit(filled, "G", 4)
    commit(filled, "G", 2, topic="U")
    filled.broker.topics.delete("T")
    assert (
        filled.call(
            RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "G", "destGroup": "N"}
        ).code
        == 0
    )
    assert (offset(filled, "N"), offset(filled, "N", topic="U")) == (-1, 2)


def test_time_span(filled, clock):
    commit(filled, "G", 4)
    clock.ms += 10_000
    body = load_json(
        filled.call(
            RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "T", "group": "G"}
        ).body
    )
    spans = {
        each["messageQueue"]["queueId"]: each for each in body["consumeTimeSpanSet"]
    }
    assert set(spans) == {0, 1}
    first = spans[0]
    assert first["maxTimeStamp"] - first["minTimeStamp"] == 5_000
    assert first["consumeTimeStamp"] == first["minTimeStamp"] + 3_000
    assert first["delayTime"] == 11_000
    assert first["minTimeStampStr"].endswith(f":{first['minTimeStamp'] % 1000:03}")
    assert spans[1]["maxTimeStamp"] == -1


def test_time_span_of_an_unknown_topic(caller):
    answer = caller.call(
        RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "U", "group": "G"}
    )
    assert (answer.code, answer.remark) == (17, "topic[U] not exist")


def test_queue_entries(filled):
    fields = {"topic": "T", "queueId": 0, "index": 4, "count": 10}
    body = json.loads(filled.call(RequestCode.QUERY_CONSUME_QUEUE, fields).body)
    assert (body["minQueueIndex"], body["maxQueueIndex"]) == (0, 6)
    queue = filled.broker.store.queues.get("T", 0)
    assert [
        (each["physicOffset"], each["physicSize"], each["tagsCode"])
        for each in body["queueData"]
    ] == [queue.entry_at(4), queue.entry_at(5)]
    assert body["queueData"][0]["tagsCode"] == 97


def test_queue_entries_and_a_group_that_is_away(filled):
    fields = {"topic": "T", "queueId": 0, "index": 0, "count": 1, "consumerGroup": "G"}
    body = json.loads(filled.call(RequestCode.QUERY_CONSUME_QUEUE, fields).body)
    assert body["filterData"] == "G@T is not online!"


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "U", "queueId": 0}, 1, "0@U is not exist!"),
        ({"topic": "T", "queueId": 0, "index": 6}, 0, "Index 6 of 0@T is not exist!"),
        ({"topic": "T", "queueId": 0, "index": -1}, 0, "Index -1 of 0@T is not exist!"),
    ],
)
def test_no_entry_there(filled, fields, code, remark):
    answer = filled.call(
        RequestCode.QUERY_CONSUME_QUEUE, {"index": 0, "count": 1, **fields}
    )
    assert (answer.code, answer.remark, answer.body) == (code, remark, b"")
