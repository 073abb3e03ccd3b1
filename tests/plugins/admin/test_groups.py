"""Consumer groups as tools see and change them."""

import json

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode


def test_group_is_created_and_shown(caller):
    body = b'{"groupName":"New","retryMaxTimes":3}'
    assert (
        caller.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0
    )
    shown = json.loads(
        caller.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "New"}).body
    )
    assert shown["retryMaxTimes"] == 3
    assert shown["groupRetryPolicy"] == {"type": "CUSTOMIZED"}


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"{}", 29, "The specified group is blank."),
        (b'{"groupName":"bad group"}', 29, "illegal characters"),
        (b'{"groupName":"%s"}' % (b"x" * 121), 29, "group max length: 120"),
        (b"{garbage", 1, "SubscriptionGroupConfig"),
        (b'{"groupName":"New","retryQueueNums":-1}', 29, "retryQueueNums"),
        (b'{"groupName":"New","retryQueueNums":70000}', 29, "retryQueueNums"),
        (b'{"groupName":"New","groupRetryPolicy":{"type":"NOPE"}}', 29, "is NOPE"),
    ],
)
def test_refused_group(caller, body, code, remark):
    answer = caller.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    assert answer.code == code
    assert remark in answer.remark
    assert caller.broker.groups.get("New") is None


def test_no_body_changes_nothing(caller):
    version = caller.broker.groups.data_version
    assert caller.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).code == 0
    assert caller.broker.groups.data_version == version


def test_all_groups_and_pages(caller):
    answer = caller.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    body = json.loads(answer.body)
    groups = body["subscriptionGroupTable"]
    assert answer.ext_fields == {"totalGroupNum": str(len(groups))}
    assert "TOOLS_CONSUMER" in groups
    assert body["forbiddenTable"] == {}
    page = caller.call(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"groupSeq": 2, "maxGroupNum": 3}
    )
    assert list(json.loads(page.body)["subscriptionGroupTable"]) == sorted(groups)[2:5]


def test_question_creates_the_group(caller):
    assert (
        caller.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "Asked"}).code
        == 0
    )
    assert caller.broker.groups.get("Asked") is not None


def test_unknown_group(make_caller):
    caller = make_caller(auto_create_subscription_group=False)
    assert (
        caller.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "Asked"}).code
        == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    )


def change(caller, attributes):
    body = json.dumps({"groupName": "G", "attributes": attributes}).encode()
    return caller.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


def test_attributes_are_added_changed_removed_and_kept(caller):
    def shown():
        return caller.broker.groups.get("G").attributes

    assert change(caller, {"+lite.bind.topic": "A", "+priority.factor": "5"}).code == 0
    assert shown() == {"lite.bind.topic": "A", "priority.factor": "5"}
    assert change(caller, {}).code == 0
    assert change(caller, {"+lite.bind.topic": "B", "-priority.factor": ""}).code == 0
    assert shown() == {"lite.bind.topic": "B"}
    assert change(caller, {"lite.sub.model": "Exclusive"}).code == 0
    assert shown() == {"lite.bind.topic": "B", "lite.sub.model": "Exclusive"}


@pytest.mark.parametrize(
    ("attributes", "remark"),
    [
        ({"+color": "red"}, "unsupported key: color"),
        ({"+lite.sub.model": "Else"}, "value is not in set"),
        ({"+lite.sub.client.max.event.cnt": "9"}, "value is not in range(10, "),
        ({"+priority.factor": "101"}, "value is not in range(0, 100)"),
        ({"+priority.factor": "x"}, "it must be a whole number"),
        ({"+lite.sub.reset.offset.exclusive": "yes"}, "value is not in set"),
        ({"+priority.factor": "1", "-priority.factor": ""}, "alter duplication key"),
        ({"+lite.bind.topic": "x" * 5_000}, "more than 4096 characters"),
    ],
)
def test_refused_attributes(caller, attributes, remark):
    answer = change(caller, attributes)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in answer.remark
    assert caller.broker.groups.get("G") is None
