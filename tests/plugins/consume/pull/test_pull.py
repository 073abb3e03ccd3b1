"""Pulls: checks in their order, statuses and codes, the parts of an answer."""

import pytest

from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.heartbeat import ConsumerData, SubscriptionData
from rmq.protocol.codes import ResponseCode
from rmq.protocol.records import decode_stored
from rmq.store.results import GetResult, GetStatus

COMPLETE = {
    "suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset",
    "topicSysFlag", "groupSysFlag",
}  # fmt: skip


def subscribe(caller, *subscriptions, model="CLUSTERING", group="G"):
    """Register a consumer as its heartbeat would."""
    data = ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        message_model=model,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        subscription_data_set=list(subscriptions),
    )
    caller.broker.groups.find(group)
    caller.broker.consumers.register(data, "c@1", caller.connection, "JAVA", 513, 0)


def bodies(answer):
    return [record.body for record in decode_stored(answer.body)]


def send_tagged(caller, *tags):
    for tag in tags:
        caller.send(body=tag.encode(), properties=f"TAGS\x01{tag}\x02")


def test_messages_come_as_they_are_stored(caller):
    send_tagged(caller, "A", "B")
    answer = caller.pull()
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert answer.body == caller.broker.store.reads.get("T", 0, 0, 32).body
    assert answer.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "2",
        "minOffset": "0",
        "maxOffset": "2",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


def test_lite_pull_is_a_pull(caller):
    send_tagged(caller, "A")
    assert bodies(caller.pull(code=361)) == [b"A"]


def test_only_the_main_port_takes_pulls_and_pops(caller):
    assert {code for code, ports in caller.ports.items() if ports == ("main",)} == {
        11,
        361,
        200050,
        200052,
        200054,
        200055,
        200070,
    }


def test_flags_of_topic_and_group_are_shown(caller):
    caller.topic("U", topic_sys_flag=3)
    caller.broker.groups.update(
        SubscriptionGroupConfig(group_name="G", group_sys_flag=1)
    )
    fields = caller.pull("U").ext_fields
    assert (fields["topicSysFlag"], fields["groupSysFlag"]) == ("3", "1")


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("*", [b"A", b"B", b"C"]),
        ("", [b"A", b"B", b"C"]),
        (None, [b"A", b"B", b"C"]),
        ("A", [b"A"]),
        (" A || C ", [b"A", b"C"]),
        ("A||", [b"A"]),
    ],
)
def test_tags_choose(caller, expression, found):
    send_tagged(caller, "A", "B", "C")
    assert bodies(caller.pull(subscription=expression)) == found


def test_nothing_matches(caller):
    send_tagged(caller, "A", "B")
    answer = caller.pull(subscription="Nope")
    assert (answer.code, answer.remark) == (20, "NO_MATCHED_MESSAGE")
    assert answer.ext_fields["nextBeginOffset"] == "2"


@pytest.mark.parametrize(
    ("offset", "code", "status", "following"),
    [
        (3, 19, "OFFSET_OVERFLOW_ONE", "3"),
        (4, 21, "OFFSET_OVERFLOW_BADLY", "3"),
        (-1, 21, "OFFSET_TOO_SMALL", "0"),
        (2**62, 21, "OFFSET_OVERFLOW_BADLY", "3"),
    ],
)
def test_offsets_outside_the_queue(caller, offset, code, status, following):
    send_tagged(caller, "A", "B", "C")
    answer = caller.pull(offset=offset)
    assert (answer.code, answer.remark) == (code, status)
    assert answer.ext_fields["nextBeginOffset"] == following
    assert set(answer.ext_fields) == COMPLETE


@pytest.mark.parametrize(("offset", "code"), [(0, 19), (5, 21)])
def test_empty_queue_depends_on_the_offset(caller, offset, code):
    answer = caller.pull(offset=offset)
    assert answer.code == code
    assert answer.ext_fields["nextBeginOffset"] == "0"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (GetStatus.FOUND, 0),
        (GetStatus.MESSAGE_WAS_REMOVING, 20),
        (GetStatus.NO_MATCHED_MESSAGE, 20),
        (GetStatus.OFFSET_OVERFLOW_ONE, 19),
        (GetStatus.OFFSET_OVERFLOW_BADLY, 21),
        (GetStatus.OFFSET_TOO_SMALL, 21),
        (GetStatus.OFFSET_RESET, 21),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 19),
    ],
)
def test_every_status_has_its_code(caller, monkeypatch, status, code):
    result = GetResult(status, 7, 1, 9)
    monkeypatch.setattr(
        caller.broker.store.reads, "get", lambda *_args, **_kwargs: result
    )
    answer = caller.pull()
    assert (answer.code, answer.remark) == (code, status.name)
    assert answer.ext_fields["nextBeginOffset"] == "7"
    assert set(answer.ext_fields) == COMPLETE


@pytest.mark.parametrize(("asked", "count"), [(0, 1), (-7, 1), (3, 3), (1_000, 32)])
def test_number_of_messages(caller, asked, count):
    send_tagged(caller, *(["A"] * 40))
    assert len(bodies(caller.pull(maxMsgNums=asked))) == count


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (0, 3), (-1, 3), (None, 3)])
def test_size_limit_of_the_client(caller, limit, count):
    send_tagged(caller, "A", "B", "C")
    assert len(bodies(caller.pull(maxMsgBytes=limit))) == count


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "No"}, 17, "topic[No] not exist, apply first please!"),
        ({"topic": "../../x"}, 17, "topic[../../x] not exist"),
        ({"queueId": 2}, 29, "queueId[2] is illegal, topic:[T]"),
        ({"queueId": -1}, 29, "queueId[-1] is illegal"),
        ({"consumerGroup": "a b"}, 26, "subscription group [a b] does not exist"),
        ({"consumerGroup": "x" * 121}, 26, "does not exist"),
        ({"subscription": "||"}, 23, "parse the consumer's subscription failed"),
        ({"subscription": "a||" * 5_000}, 23, "parse the consumer's"),
        ({"expressionType": "SQL92", "subscription": "a > 1"}, 1, "message by SQL92"),
        ({"expressionType": "FOO"}, 1, "message by FOO"),
        ({"sysFlag": 0}, 24, "the consumer's group info not exist"),
        ({"queueOffset": None}, 1, "queueOffset"),
        ({"sysFlag": "x"}, 1, "sysFlag"),
    ],
)
def test_refused(caller, fields, code, remark):
    fields = {"topic": "T", **fields}
    answer = caller.pull(**fields)
    assert answer.code == code
    assert remark in answer.remark
    assert answer.ext_fields == {}


def test_group_is_created_by_its_first_pull(caller):
    assert caller.pull(consumerGroup="New").code == ResponseCode.PULL_NOT_FOUND
    assert caller.broker.groups.get("New") is not None


def test_unknown_group_without_creation(make_caller):
    caller = make_caller(auto_create_subscription_group=False)
    assert caller.pull().code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_forbidden_broker(make_caller):
    answer = make_caller(broker_permission=2).pull()
    assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "1"})


def test_forbidden_lite_pull(make_caller):
    caller = make_caller(lite_pull_message_enable=False)
    answer = caller.pull(code=361)
    assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "1"})
    assert caller.pull().code == ResponseCode.PULL_NOT_FOUND


def test_forbidden_group(caller):
    caller.broker.groups.update(
        SubscriptionGroupConfig(group_name="G", consume_enable=False)
    )
    answer = caller.pull()
    assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "2"})


def test_forbidden_topic(caller):
    caller.topic("W", perm=2)
    answer = caller.pull("W")
    assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "3"})


def test_forbidden_broadcast(caller):
    subscribe(caller, SubscriptionData(topic="T", sub_string="*"), model="BROADCASTING")
    caller.broker.groups.update(
        SubscriptionGroupConfig(group_name="G", consume_broadcast_enable=False)
    )
    answer = caller.pull(sysFlag=0)
    assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "4"})


def test_forbidden_subscription(caller):
    subscribe(caller, SubscriptionData(topic="T", sub_string="*"))
    caller.broker.groups.forbidden_topics["G"] = {"T": 4}
    answer = caller.pull(sysFlag=0)
    assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "5"})


def test_subscription_of_the_heartbeat_filters(caller):
    subscribe(caller, SubscriptionData(topic="T", sub_string="B", sub_version=9))
    send_tagged(caller, "A", "B")
    assert bodies(caller.pull(sysFlag=0, subVersion=9)) == [b"B"]
    assert bodies(caller.pull(sysFlag=0, subVersion=8, subscription="A")) == [b"B"]


def test_subscription_of_another_topic(caller):
    subscribe(caller, SubscriptionData(topic="Other", sub_string="*"))
    answer = caller.pull(sysFlag=0)
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert "subscription not exist" in answer.remark


def test_tags_newer_than_the_heartbeat_are_served_unfiltered(caller):
    subscribe(caller, SubscriptionData(topic="T", sub_string="B", sub_version=9))
    send_tagged(caller, "A", "B")
    assert bodies(caller.pull(sysFlag=0, subVersion=10)) == [b"A", b"B"]


def test_sql_newer_than_the_heartbeat_must_wait(caller):
    sql = SubscriptionData(topic="T", sub_string="a > 1", expression_type="SQL92")
    subscribe(caller, sql)
    assert (
        caller.pull(sysFlag=0, subVersion=1).code
        == ResponseCode.SUBSCRIPTION_NOT_LATEST
    )
    caller.broker.filters.register("G", [sql])
    assert caller.pull(sysFlag=0, subVersion=0).code == ResponseCode.SYSTEM_ERROR


def test_pull_commits_the_offset_it_carries(caller):
    send_tagged(caller, "A")
    caller.pull(sysFlag=5, commitOffset=1)
    assert caller.broker.offsets.query("G", "T", 0) == 1


@pytest.mark.parametrize(
    "fields", [{"sysFlag": 4}, {"commitOffset": -1}, {"queueId": 2}, {"topic": "No"}]
)
def test_pull_that_commits_nothing(caller, fields):
    caller.pull(**{"topic": "T", "sysFlag": 5, "commitOffset": 1, **fields})
    for queue_id in range(3):
        assert caller.broker.offsets.query("G", "T", queue_id) == -1


def test_closed_store_is_a_system_error(caller):
    caller.broker.store.close()
    answer = caller.pull()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark.startswith("store getMessage return null")


def test_many_expressions_do_not_grow_without_end(caller):
    from rmq.filters.tags import tag_codes

    for number in range(2_000):
        tag_codes(f"tag{number}")
    assert tag_codes.cache_info().currsize <= 1_024


def test_sql_reads_stored_properties(make_caller):
    caller = make_caller(enable_property_filter=True)
    for number in range(100):
        caller.send(body=b"%d" % number, properties=f"n\x01{number}\x02")
    sql = {"expressionType": "SQL92", "subscription": "n >= 70 AND n < 73"}
    answer = caller.pull(**sql)
    assert (answer.code, bodies(answer)) == (0, [b"70", b"71", b"72"])
    nothing = caller.pull(offset=73, **sql)
    assert (nothing.code, nothing.ext_fields["nextBeginOffset"]) == (20, "100")


def test_sql_that_is_none_is_refused_with_its_reason(make_caller):
    caller = make_caller(enable_property_filter=True)
    caller.send()
    answer = caller.pull(expressionType="SQL92", subscription="n > 'x'")
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "Value ''x'' cannot be compared." in answer.remark


def test_sql_of_the_heartbeat_is_used_when_the_pull_has_none(make_caller):
    caller = make_caller(enable_property_filter=True)
    send_tagged(caller, "A", "B")
    wanted = SubscriptionData(
        topic="T", sub_string="TAGS = 'B'", sub_version=1, expression_type="SQL92"
    )
    subscribe(caller, wanted)
    own = {"sysFlag": 0, "subscription": None, "subVersion": 1}
    assert caller.pull(**own).code == ResponseCode.FILTER_DATA_NOT_EXIST
    caller.broker.filters.register("G", [wanted])
    assert bodies(caller.pull(**own)) == [b"B"]


@pytest.mark.parametrize(("filters", "expected"), [(True, [b"2", b"4"]), (False, None)])
def test_retry_topics_are_filtered_by_the_selector_of_the_first_topic(
    make_caller, filters, expected
):
    caller = make_caller(enable_property_filter=True, filter_support_retry=filters)
    caller.topic("%RETRY%G")
    wanted = SubscriptionData(
        topic="T", sub_string="n > 1", sub_version=1, expression_type="SQL92"
    )
    caller.broker.filters.register("G", [wanted])
    sent = {
        b"1": "n\x011\x02RETRY_TOPIC\x01T\x02",
        b"2": "n\x012\x02RETRY_TOPIC\x01T\x02",
    }
    sent |= {b"3": "RETRY_TOPIC\x01T\x02", b"4": "n\x010\x02RETRY_TOPIC\x01Other\x02"}
    for body, properties in sent.items():
        caller.send("%RETRY%G", body, properties=properties)
    assert bodies(caller.pull("%RETRY%G")) == (expected or list(sent))
