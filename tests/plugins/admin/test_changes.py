"""What tools change: groups, modes, configuration, old files: 25, 207, 225, 305 to 353,
401, 402, 906, 907, and what is refused with advice.
"""

import dataclasses
import json
import os
from types import SimpleNamespace

import pytest

from rmq.config.option import option
from rmq.plugin import hookimpl
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.fastjson import dump_json
from rmq_plugins.admin.request_modes import RequestModes
from rmq_plugins.admin.unserved import ADVICE


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """Keys as a plugin declares them."""

    depth: int = option(
        5, key="plugin.x.depth", doc="a number", low=1, high=9, dynamic=True
    )
    name: str = option("a", key="plugin.x.name", doc="a text", dynamic=True)


@hookimpl
def rmq_setup(register):
    register.config(Options)


@pytest.fixture
def caller(broker, make_caller_of):
    plugin = SimpleNamespace(rmq_setup=rmq_setup, Options=Options)
    return make_caller_of(broker, plugins={"x": plugin})


@pytest.fixture
def options(caller):
    (found,) = [each for each in caller.broker.configs() if isinstance(each, Options)]
    return found


def settings(caller):
    lines = caller.call(RequestCode.GET_BROKER_CONFIG).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_dynamic_keys_change(caller, options):
    version = caller.call(RequestCode.GET_BROKER_CONFIG).ext_fields["version"]
    answer = caller.call(
        RequestCode.UPDATE_BROKER_CONFIG, body=b"plugin.x.depth=7\nplugin.x.name=b c\n"
    )
    assert (answer.code, answer.ext_fields) == (0, {})
    assert (options.depth, options.name) == (7, "b c")
    assert settings(caller)["plugin.x.depth"] == "7"
    assert caller.call(RequestCode.GET_BROKER_CONFIG).ext_fields["version"] != version


@pytest.mark.parametrize(
    ("text", "code", "remark"),
    [
        ("plugin.x.depth=10", 29, "the largest value is 9"),
        ("plugin.x.depth=many", 29, "it must be a whole number"),
        ("storePathRootDir=/tmp", 16, "storePathRootDir: this key cannot be changed"),
        ("brokerConfigPath=x", 16, "Can not update config in black list."),
        ("rocketmqHome=x", 16, "Can not update config in black list. rocketmqHome"),
        (
            "nonsense=1\nstorePathRootDir=/tmp",
            16,
            "storePathRootDir: this key cannot be",
        ),
        ("a=\\uZZZZ", 1, "string2Properties error"),
        ("#" + "x" * 65_536, 29, "more than 65536 bytes"),
    ],
)
def test_changes_that_are_refused(caller, options, text, code, remark):
    body = b"plugin.x.name=b\n" + text.encode()
    answer = caller.call(RequestCode.UPDATE_BROKER_CONFIG, body=body)
    assert answer.code == code
    assert remark in answer.remark
    assert (options.depth, options.name) == (5, "a"), "all of a request or none"


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("sendThreadPoolQueueCapacity=9", "has no effect in rmq"),
        ("plugin.x.dpth=3", "did you mean plugin.x.depth?"),
        ("nonsense", "ignored: nonsense: unknown key"),
    ],
)
def test_keys_that_do_not_exist_are_ignored_with_a_line(
    caller, options, caplog, text, remark
):
    body = b"plugin.x.name=b\n" + text.encode()
    answer = caller.call(RequestCode.UPDATE_BROKER_CONFIG, body=body)
    assert answer.code == 0
    assert remark in answer.remark
    assert remark in caplog.text
    assert (options.depth, options.name) == (5, "b")


def group(name, **more):
    return {"groupName": name, **more}


def test_groups_in_one_request(caller):
    groups = [group("A", retryMaxTimes=3), group("B", consumeEnable=False)]
    body = dump_json({"groupConfigList": groups})
    assert (
        caller.call(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body
        ).code
        == 0
    )
    shown = json.loads(
        caller.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "A"}).body
    )
    assert shown["retryMaxTimes"] == 3
    assert (
        json.loads(
            caller.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "B"}).body
        )["consumeEnable"]
        is False
    )


@pytest.mark.parametrize("wrong", [group("a b"), group("B", retryQueueNums=-1)])
def test_one_wrong_group_stops_all(caller, wrong):
    body = dump_json({"groupConfigList": [group("A"), wrong]})
    assert (
        caller.call(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body
        ).code
        != 0
    )
    assert caller.broker.groups.get("A") is None


@pytest.mark.parametrize(
    ("fields", "left"),
    [({}, 4), ({"cleanOffset": "true"}, -1), ({"removeOffset": "true"}, -1)],
)
def test_group_is_deleted(caller, fields, left):
    caller.broker.groups.find("G")
    caller.broker.offsets.commit("c", "G", "T", 0, 4)
    assert (
        caller.call(
            RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G", **fields}
        ).code
        == 0
    )
    assert caller.broker.groups.get("G") is None
    assert caller.broker.offsets.query("G", "T", 0) == left


def test_group_is_forbidden_a_topic(caller):
    caller.send()
    caller.broker.groups.find("G")
    fields = {"group": "G", "topic": "T"}
    answer = caller.call(
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, {**fields, "readable": "false"}
    )
    assert json.loads(answer.body) == {**fields, "readable": False}
    assert caller.broker.groups.is_forbidden("G", "T")
    assert (
        json.loads(
            caller.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, fields).body
        )["readable"]
        is False
    )
    answer = caller.call(
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, {**fields, "readable": "true"}
    )
    assert json.loads(answer.body)["readable"] is True
    assert not caller.broker.groups.is_forbidden("G", "T")


def test_unknown_group_cannot_be_forbidden(caller):
    fields = {"group": "X", "topic": "T", "readable": "false"}
    assert (
        caller.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, fields).code
        == ResponseCode.SYSTEM_ERROR
    )


def test_system_topics(caller):
    names = json.loads(caller.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body)[
        "topicList"
    ]
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "DefaultCluster"} <= set(names)
    assert "T" not in names


def mode(**more):
    fields = {
        "topic": "T", "consumerGroup": "G", "mode": "PULL", "popShareQueueNum": 3,
    }  # fmt: skip
    return fields | more


def test_mode_is_kept(caller, clock):
    caller.broker.groups.find("G")
    assert (
        caller.call(RequestCode.SET_MESSAGE_REQUEST_MODE, body=dump_json(mode())).code
        == 0
    )
    shown = json.loads(caller.call(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE).body)
    assert shown == {"messageRequestModeMap": {"T": {"G": mode()}}}
    (table,) = [
        each
        for each, _ in caller.registered.tables
        if each.file_name == "messageRequestMode.json"
    ]
    table.write(table.snapshot())
    again = RequestModes(caller.broker.store.directory.config, clock)
    again.load()
    assert json.loads(again.text()) == shown


@pytest.mark.parametrize(("may_create", "code"), [(True, 0), (False, 26)])
def test_a_mode_creates_its_group_as_other_requests_do(make_caller, may_create, code):
    caller = make_caller(auto_create_subscription_group=may_create)
    answer = caller.call(RequestCode.SET_MESSAGE_REQUEST_MODE, body=dump_json(mode()))
    assert answer.code == code
    assert (caller.broker.groups.get("G") is not None) == may_create


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"topic": "%RETRY%G"}, 16),
        ({"topic": "U"}, 17),
        ({"mode": "PUSH"}, 1),
    ],
)
def test_modes_that_are_refused(caller, more, code):
    caller.broker.groups.find("G")
    assert (
        caller.call(
            RequestCode.SET_MESSAGE_REQUEST_MODE, body=dump_json(mode(**more))
        ).code
        == code
    )
    assert json.loads(caller.call(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE).body) == {
        "messageRequestModeMap": {}
    }


def test_end_of_the_log_without_replicas(caller):
    caller.send()
    body = json.loads(caller.call(RequestCode.GET_BROKER_HA_STATUS).body)
    assert body["master"] is True
    assert body["masterCommitLogMaxOffset"] == caller.broker.store.log.end_offset > 0
    assert (body["inSyncSlaveNums"], body["haConnectionInfo"]) == (0, [])


def test_a_replica_is_told_where_the_log_is(caller):
    assert caller.call(RequestCode.EXCHANGE_BROKER_HA_INFO).ext_fields == {
        "masterHaAddress": "127.0.0.1:10912",
        "masterAddress": "127.0.0.1:10911",
        "masterFlushOffset": "0",
    }
    fields = {"masterHaAddress": "10.0.0.2:10912", "masterAddress": "10.0.0.2:10911"}
    answer = caller.call(RequestCode.EXCHANGE_BROKER_HA_INFO, fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "not of 10.0.0.2:10911" in answer.remark


@pytest.mark.parametrize("code", ADVICE)
def test_what_is_not_there_is_refused_with_advice(caller, code):
    answer = caller.call(code)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    start = f" request type {RequestCode(code).value} not supported: "
    assert answer.remark.startswith(start)
    assert len(answer.remark) > len(start) + 20


def test_expired_files_go_when_asked(make_caller, clock):
    """Three days later, at an hour at which nothing is deleted by itself."""
    caller = make_caller()
    store, body = caller.broker.store, b"x" * 1_000_000
    for _ in range(40):
        assert caller.send(body=body).code == 0
    store.durability.flush()
    while store.index.lag_bytes:
        store.index.build()
    clock.ms += 73 * 3_600_000
    files = sorted(store.directory.commit_log.glob("0*"))
    for path in files:
        os.utime(path, (0, 0))
    store.cleaner.expiry_ms(0)
    assert store.cleaner.expiry_ms(0) is None
    assert caller.call(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
    expiry_ms = store.cleaner.expiry_ms(0)
    while file := store.cleaner.take_log_file(expiry_ms):
        store.cleaner.discard([file])
    assert store.log.min_offset > 0
    assert caller.broker.store.reads.min_offset("T", 0) == 0
    assert caller.call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == 0
    assert caller.broker.store.reads.min_offset("T", 0) > 0


def test_queues_of_unknown_topics_go(caller):
    caller.send("T")
    caller.topic("U")
    caller.send("U")
    caller.broker.topics.delete("U")
    folder = caller.broker.store.directory.consume_queue
    caller.broker.store.queues.flush()
    assert (folder / "U").exists()
    assert caller.call(RequestCode.CLEAN_UNUSED_TOPIC).code == 0
    assert not (folder / "U").exists()
    assert (folder / "T").exists()
    assert caller.broker.store.reads.max_offset("T", 0) == 1
