"""Connections and subscriptions: requests 203, 204, 300, 328, 343 and 345."""

import json

import pytest

from rmq.protocol.bodies.heartbeat import HeartbeatData
from rmq.protocol.codes import RequestCode
from rmq.protocol.fastjson import dump_json

SUBSCRIPTION = {
    "topic": "T", "subString": "a || b", "tagsSet": ["a", "b"], "codeSet": [97, 98],
    "subVersion": 7, "expressionType": "TAG", "classFilterMode": False,
}  # fmt: skip
HEARTBEAT = {
    "clientID": "c@1",
    "producerDataSet": [{"groupName": "P"}],
    "consumerDataSet": [
        {
            "groupName": "G", "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [SUBSCRIPTION], "unitMode": False,
        }
    ],
}  # fmt: skip


@pytest.fixture
def online(caller):
    """Bring a producer of P and a consumer of G online."""
    assert HeartbeatData.decode(dump_json(HEARTBEAT)).client_id == "c@1"
    assert (
        caller.call(RequestCode.HEART_BEAT, body=dump_json(HEARTBEAT), version=400).code
        == 0
    )
    return caller


def test_members_of_a_consumer_group(online):
    body = json.loads(
        online.call(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "G"}
        ).body
    )
    (member,) = body["connectionSet"]
    assert member == {
        "clientAddr": "127.0.0.1:40001",
        "clientId": "c@1",
        "language": "OTHER",
        "version": 400,
    }
    assert body["consumeType"] == "CONSUME_PASSIVELY"
    assert body["messageModel"] == "CLUSTERING"
    assert body["consumeFromWhere"] == "CONSUME_FROM_FIRST_OFFSET"
    assert body["subscriptionTable"]["T"] == SUBSCRIPTION


@pytest.mark.parametrize(
    ("code", "fields", "answer", "remark"),
    [
        (203, {"consumerGroup": "X"}, 206, "the consumer group[X] not online"),
        (204, {"producerGroup": "X"}, 1, "the producer group[X] not exist"),
    ],
)
def test_nobody_is_there(online, code, fields, answer, remark):
    refused = online.call(code, fields)
    assert (refused.code, refused.remark) == (answer, remark)


def test_members_of_a_producer_group(online):
    body = json.loads(
        online.call(
            RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "P"}
        ).body
    )
    assert [member["clientId"] for member in body["connectionSet"]] == ["c@1"]
    assert body["connectionSet"][0]["version"] == 400


def test_all_producers(online, clock):
    body = json.loads(online.call(RequestCode.GET_ALL_PRODUCER_INFO).body)
    assert body["data"]["P"] == [
        {
            "clientId": "c@1",
            "language": "OTHER",
            "lastUpdateTimestamp": clock.ms,
            "remoteIP": "/127.0.0.1:40001",
            "version": 400,
        }
    ]


@pytest.mark.parametrize(
    ("language", "shown"), [("GO", "GO"), (0, "JAVA"), (9, "GO"), (200, "OTHER")]
)
def test_languages_by_name_or_number(caller, language, shown):
    caller.broker.producers.register("P", "c", caller.connection, language, 1, 0)
    body = json.loads(
        caller.call(
            RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "P"}
        ).body
    )
    assert body["connectionSet"][0]["language"] == shown


def test_groups_of_a_topic_are_online_or_have_offsets(online):
    commit(online, "Offline", "T")
    commit(online, "Other", "U")
    body = json.loads(
        online.call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "T"}).body
    )
    assert body == {"groupList": ["G", "Offline"]}


def test_topics_of_a_group(online):
    commit(online, "G", "T")
    commit(online, "G", "U")
    commit(online, "Other", "V")
    body = json.loads(
        online.call(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "G"}).body
    )
    assert body == {"brokerAddr": "127.0.0.1:10911", "topicList": ["T", "U"]}


def test_subscription_of_a_group(online):
    body = json.loads(
        online.call(
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "G", "topic": "T"}
        ).body
    )
    assert body["subscriptionData"] == SUBSCRIPTION
    body = json.loads(
        online.call(
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "G", "topic": "U"}
        ).body
    )
    assert body == {"group": "G", "topic": "U"}


def commit(caller, group, topic, offset=1):
    fields = {
        "consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": offset,
    }  # fmt: skip
    caller.topic(topic)
    caller.broker.groups.find(group)
    assert caller.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
