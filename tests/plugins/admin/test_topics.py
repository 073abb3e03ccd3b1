"""Topics as tools see and change them."""

import json
from types import SimpleNamespace

import pytest

from rmq.broker.audit import DETAILED_TOPICS, add_audit
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.fastjson import load_json
from rmq_plugins.admin.topics import TOPICS_OF_A_TURN, TopicHandler

NEW = {
    "topic": "New",
    "defaultTopic": "TBW102",
    "readQueueNums": 2,
    "writeQueueNums": 3,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
}


def test_topic_is_created(caller):
    attributes = "+message.type=FIFO,+reserve.time=5"
    fields = {**NEW, "attributes": attributes, "order": "true"}
    assert caller.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0
    answer = caller.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "New"})
    assert json.loads(answer.body) == {
        "attributes": {"message.type": "FIFO", "reserve.time": "5"},
        "order": True,
        "perm": 6,
        "readQueueNums": 2,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "New",
        "topicSysFlag": 0,
        "writeQueueNums": 3,
    }


def test_topic_is_changed(caller):
    caller.call(
        RequestCode.UPDATE_AND_CREATE_TOPIC, {**NEW, "attributes": "+message.type=FIFO"}
    )
    version = caller.broker.topics.data_version
    caller.call(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {**NEW, "perm": 4, "attributes": "-message.type"},
    )
    config = caller.broker.topics.get("New")
    assert (config.perm, config.attributes) == (4, {})
    assert caller.broker.topics.data_version != version


def test_same_topic_again_changes_no_version(caller):
    caller.call(RequestCode.UPDATE_AND_CREATE_TOPIC, NEW)
    version = caller.broker.topics.data_version
    assert caller.call(RequestCode.UPDATE_AND_CREATE_TOPIC, NEW).code == 0
    assert caller.broker.topics.data_version == version


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": ""}, 29, "The specified topic is blank."),
        ({"topic": "a b"}, 29, "illegal characters"),
        ({"topic": "../../x"}, 29, "illegal characters"),
        ({"topic": "x" * 128}, 29, "max length: 127"),
        ({"topic": "TBW102"}, 29, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "DefaultCluster"}, 29, "is conflict with system topic"),
        ({"topic": "broker-a"}, 29, "is conflict with system topic"),
        ({"topic": "rmq_sys_x"}, 29, "is conflict with system topic"),
        ({"topicFilterType": "NOPE"}, 1, "topicFilterType = [NOPE] value invalid"),
        ({"readQueueNums": -1}, 29, "readQueueNums"),
        ({"writeQueueNums": 2**31 - 1}, 29, "allowed are 0 to 65536"),
        ({"readQueueNums": None}, 1, "readQueueNums"),
        ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type"),
        ({"attributes": "message.type=FIFO"}, 1, "format is wrong: message.type"),
        ({"attributes": "+colour=red"}, 1, "unsupported key: colour"),
        ({"attributes": "+message.type=RED"}, 1, "value is not in set"),
        ({"attributes": "+reserve.time=soon"}, 1, "it must be a whole number"),
        ({"attributes": "-message.type"}, 1, "only add attribute is supported"),
        ({"attributes": "message.type"}, 1, "delete attribute format is wrong"),
        (
            {"attributes": "+message.type=FIFO,-message.type"},
            1,
            "key duplication: message.type",
        ),
        ({"attributes": "+" * 5_000}, 1, "more than 4096 characters"),
    ],
)
def test_refused_topic(caller, fields, code, remark):
    wanted = {**NEW, **fields}
    answer = caller.call(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {k: v for k, v in wanted.items() if v is not None},
    )
    assert answer.code == code
    assert remark in answer.remark
    assert caller.broker.topics.get("New") is None


def test_attribute_that_may_not_change(caller):
    fields = {**NEW, "attributes": "+queue.type=SimpleCQ"}
    assert caller.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0
    answer = caller.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    assert "unchangeable attribute" in answer.remark


def test_mixed_type_if_allowed(make_caller):
    caller = make_caller(enable_mixed_message_type=True)
    fields = {**NEW, "attributes": "+message.type=MIXED"}
    assert caller.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0


def topic_list(*names, **more):
    topics = [{"topicName": name, "readQueueNums": 1, **more} for name in names]
    return json.dumps({"topicConfigList": topics}).encode()


def test_list_of_topics(caller):
    body = topic_list("L1", "L2", attributes={"+message.type": "DELAY"})
    assert caller.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body).code == 0
    for name in ("L1", "L2"):
        config = caller.broker.topics.get(name)
        assert config.attributes == {"message.type": "DELAY"}


@pytest.mark.parametrize(
    ("names", "more"),
    [
        (("L1", "../x"), {}),
        (("L1", "TBW102"), {}),
        (("L1",), {"writeQueueNums": -1}),
        (("L1",), {"topicFilterType": "NOPE"}),
        (("L1",), {"attributes": {"+colour": "red"}}),
        (("L1",) * 10_001, {}),
    ],
)
def test_one_wrong_topic_stops_the_list(caller, names, more):
    assert caller.call(
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, topic_list(*names, **more)
    ).code in (1, 29)
    assert caller.broker.topics.get("L1") is None


async def test_a_long_list_lets_others_run(caller):
    broker, turns = caller.broker, []

    async def next_turn():
        turns.append(len(broker.topics.all()))

    broker.next_turn = next_turn
    handler = TopicHandler(broker)
    before = len(broker.topics.all())
    names = [f"L{number}" for number in range(3 * TOPICS_OF_A_TURN)]
    request = Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
    request.body = topic_list(*names)
    assert (await handler.update_topics(request, None)).code == ResponseCode.SUCCESS
    assert turns[:3] == [before] * 3, "all are checked before the first is created"
    assert turns[-1] == before + len(names)


def test_the_audit_of_a_long_list_has_names_only(caller):
    look, told = audited_list(caller), caller.broker.audit
    names = [f"L{number}" for number in range(DETAILED_TOPICS + 1)]
    look(topic_list(*names))
    look(topic_list("One"))
    long, short = told.all()
    assert long.subject.startswith("65 topics: L0, L1, ")
    assert (short.subject, short.change) == ("topic One", "")


def audited_list(caller):
    """A handler of request 18 that changes nothing, as the broker registers it."""
    broker = caller.broker
    handler = add_audit(
        broker,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        lambda request, _: request.reply(),
    )

    def look(body):
        request = Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
        request.body = body
        handler(request, SimpleNamespace(remote_address="127.0.0.1:1"))

    return look


def test_list_without_a_document(caller):
    assert (
        caller.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, b"").code
        == ResponseCode.SYSTEM_ERROR
    )


def test_topic_is_deleted_with_queues_and_offsets(caller):
    caller.send(queueId=1)
    caller.broker.offsets.commit("c", "G", "T", 1, 1)
    assert caller.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    assert caller.broker.topics.get("T") is None
    assert caller.broker.store.reads.max_offset("T", 1) == 0
    assert caller.broker.offsets.query("G", "T", 1) == -1
    assert caller.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0


@pytest.mark.parametrize("name", ["", "TBW102", "../../x", "broker-a", "x" * 300])
def test_topic_that_cannot_be_deleted(caller, name):
    assert (
        caller.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name}).code
        == ResponseCode.INVALID_PARAMETER
    )


def test_all_topics(caller):
    answer = caller.call(RequestCode.GET_ALL_TOPIC_CONFIG)
    body = json.loads(answer.body)
    topics = body["topicConfigTable"]
    assert answer.ext_fields == {"totalTopicNum": str(len(topics))}
    assert {"T", "TBW102"} <= set(topics)
    assert body["dataVersion"]["counter"] > 0


def test_all_topics_in_pages(caller):
    names = set()
    total = int(
        caller.call(RequestCode.GET_ALL_TOPIC_CONFIG).ext_fields["totalTopicNum"]
    )
    for first in range(0, total, 4):
        answer = caller.call(
            RequestCode.GET_ALL_TOPIC_CONFIG, {"topicSeq": first, "maxTopicNum": 4}
        )
        page = json.loads(answer.body)["topicConfigTable"]
        assert len(page) == min(4, total - first)
        assert answer.ext_fields == {"totalTopicNum": str(total)}
        names |= set(page)
    assert len(names) == total


@pytest.mark.parametrize(
    ("first", "count", "size"), [(-5, 1, 1), (0, 0, 15), (10**6, 5, 0), (0, -1, 15)]
)
def test_odd_pages(caller, first, count, size):
    answer = caller.call(
        RequestCode.GET_ALL_TOPIC_CONFIG, {"topicSeq": first, "maxTopicNum": count}
    )
    assert len(json.loads(answer.body)["topicConfigTable"]) >= size
    if not size:
        assert json.loads(answer.body)["topicConfigTable"] == {}


def test_unknown_topic(caller):
    answer = caller.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "No"})
    assert (answer.code, answer.remark) == (17, "No topic in this broker. topic: No")


def test_stats_of_a_topic(caller, clock):
    caller.send(queueId=1)
    clock.ms += 5
    caller.send(queueId=1)
    body = load_json(caller.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}).body)
    table = {dict(key)["queueId"]: value for key, value in body["offsetTable"].items()}
    assert table[0] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
    assert table[1] == {
        "lastUpdateTimestamp": clock.ms,
        "maxOffset": 2,
        "minOffset": 0,
    }
    assert {dict(key)["brokerName"] for key in body["offsetTable"]} == {"broker-a"}


def test_stats_of_an_unknown_topic(caller):
    answer = caller.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "No"})
    assert (answer.code, answer.remark) == (17, "topic[No] not exist")
