"""Heartbeats, goodbyes, members, checks of subscriptions."""

import json

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode


def heartbeat(caller, *, consumers=(), producers=(), connection=None, **more):
    body = {
        "clientID": "c@1",
        "consumerDataSet": list(consumers),
        "producerDataSet": [{"groupName": name} for name in producers],
        **more,
    }
    return caller.call(
        RequestCode.HEART_BEAT, {}, json.dumps(body).encode(), connection=connection
    )


def consumer(group="G", *subscriptions, **more):
    return {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [
            {"topic": topic, "subString": "*", "subVersion": 1}
            for topic in subscriptions
        ],
        "unitMode": False,
        **more,
    }


def test_first_form_always_says_both(caller):
    answer = heartbeat(caller, consumers=[consumer("G", "T")])
    assert answer.code == 0
    assert answer.ext_fields == {
        "IS_SUPPORT_HEART_BEAT_V2": "true",
        "IS_SUB_CHANGE": "true",
    }


def test_consumer_is_a_member_right_afterwards(caller):
    heartbeat(caller, consumers=[consumer("G", "T")])
    answer = caller.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"})
    assert json.loads(answer.body) == {"consumerIdList": ["c@1"]}
    assert caller.broker.consumers.subscription("G", "T").sub_string == "*"


def test_group_and_its_retry_topic_come_into_being(caller):
    heartbeat(caller, consumers=[consumer("G", "T", unitMode=True)])
    assert caller.broker.groups.get("G") is not None
    config = caller.broker.topics.get("%RETRY%G")
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
    assert config.topic_sys_flag == 2


def test_unknown_group_is_passed_over_without_creation(make_caller):
    caller = make_caller(auto_create_subscription_group=False)
    assert heartbeat(caller, consumers=[consumer("G", "T")]).code == 0
    assert caller.broker.consumers.client_ids("G") == []
    assert caller.broker.topics.get("%RETRY%G") is None


def test_second_form_asks_for_subscriptions_that_are_not_known(caller):
    bare = {"heartbeatFingerprint": 7, "withoutSub": True}
    answer = heartbeat(caller, consumers=[consumer("G")], **bare)
    assert answer.ext_fields["IS_SUB_CHANGE"] == "true"
    full = heartbeat(caller, consumers=[consumer("G", "T")], heartbeatFingerprint=7)
    assert full.ext_fields["IS_SUB_CHANGE"] == "false"
    answer = heartbeat(caller, consumers=[consumer("G")], **bare)
    assert answer.ext_fields["IS_SUB_CHANGE"] == "false"
    assert caller.broker.consumers.subscription("G", "T") is not None


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"", 1, "HeartbeatData"),
        (b"{garbage", 1, "HeartbeatData"),
        (b"[]", 1, "HeartbeatData"),
        (b'{"consumerDataSet":[]}', 1, "clientID"),
        (b'{"clientID":"%s"}' % (b"x" * 2_000), 1, "clientID"),
        (b'{"clientID":"c","producerDataSet":[{"groupName":"a b"}]}', 29, "a b"),
        (b'{"clientID":"c","producerDataSet":[{}]}', 29, "group is blank"),
        (b'{"clientID":"c","consumerDataSet":[{"groupName":"../x"}]}', 29, "../x"),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":"G",'
            b'"subscriptionDataSet":[{"topic":"../../x"}]}]}',
            29,
            "../../x",
        ),
        (
            b'{"clientID":"c","producerDataSet":['
            + b",".join([b'{"groupName":"P"}'] * 5_000)
            + b"]}",
            1,
            "more than 4096 groups",
        ),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":"G",'
            b'"subscriptionDataSet":['
            + b",".join([b'{"topic":"T"}'] * 5_000)
            + b"]}]}",
            1,
            "more than 4096 topics",
        ),
    ],
)
def test_bad_heartbeats_change_nothing(caller, body, code, text):
    answer = caller.call(RequestCode.HEART_BEAT, {}, body)
    assert answer.code == code
    assert text in answer.remark
    assert caller.broker.consumers.client_ids("G") == []


def test_goodbye(caller):
    heartbeat(caller, consumers=[consumer("G", "T")], producers=["P"])
    fields = {"clientID": "c@1", "consumerGroup": "G", "producerGroup": "P"}
    assert caller.call(RequestCode.UNREGISTER_CLIENT, fields).code == 0
    answer = caller.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"})
    assert (answer.code, answer.remark) == (1, "no consumer for this group, G")


def test_goodbye_of_a_stranger(caller):
    assert (
        caller.call(
            RequestCode.UNREGISTER_CLIENT, {"clientID": "x", "consumerGroup": "Nobody"}
        ).code
        == 0
    )
    assert (
        "clientID"
        in caller.call(RequestCode.UNREGISTER_CLIENT, {"consumerGroup": "G"}).remark
    )


@pytest.mark.parametrize(
    ("subscription", "code"),
    [
        ({"topic": "T", "subString": "*", "expressionType": "TAG"}, 0),
        ({"topic": "T", "subString": "*"}, 0),
        ({"topic": "T", "subString": "a > 1", "expressionType": "SQL92"}, 1),
        (None, 0),
    ],
)
def test_kind_of_expression_is_checked(caller, subscription, code):
    body = {"clientId": "c", "group": "G", "subscriptionData": subscription}
    answer = caller.call(RequestCode.CHECK_CLIENT_CONFIG, {}, json.dumps(body).encode())
    assert answer.code == code
    if code:
        assert answer.remark == (
            "The broker does not support consumer to filter message by SQL92"
        )


def test_check_without_a_document(caller):
    assert (
        caller.call(RequestCode.CHECK_CLIENT_CONFIG, {}, b"nonsense").code
        == ResponseCode.SYSTEM_ERROR
    )


def check_config(caller, text, kind="SQL92"):
    data = {"topic": "T", "subString": text, "expressionType": kind}
    body = {"clientId": "c@1", "group": "G", "subscriptionData": data}
    return caller.call(RequestCode.CHECK_CLIENT_CONFIG, {}, json.dumps(body).encode())


def test_check_of_a_selector_says_what_is_wrong(make_caller):
    caller = make_caller(enable_property_filter=True)
    assert check_config(caller, "a > 5").code == 0
    answer = check_config(caller, "a > 'x'")
    assert (answer.code, answer.remark) == (23, "Value ''x'' cannot be compared.")


def test_members_that_differ_are_counted(caller, make_connection):
    for number, topic in enumerate(("T", "U")):
        connection = make_connection()
        body = {"clientID": f"c@{number}", "consumerDataSet": [consumer("G", topic)]}
        caller.call(
            RequestCode.HEART_BEAT, {}, json.dumps(body).encode(), connection=connection
        )
    assert caller.broker.consumers.mismatches.statistics()[:2] == (1, 1)
    caller.broker.consumers.on_close(connection)
    assert caller.broker.consumers.mismatches.statistics()[:2] == (0, 1)


def test_consumers_that_pull_by_themselves_are_not_registered(make_caller):
    caller = make_caller(reject_pull_consumer_enable=True)
    data = consumer(consumeType="CONSUME_ACTIVELY"), consumer("H")
    assert heartbeat(caller, consumers=data).code == 0
    assert caller.broker.consumers.group_names() == ["H"]
