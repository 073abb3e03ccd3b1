"""Requests of tools to consumers: passed on, pushed, or answered by the broker."""

import json

import pytest

from rmq.core.errors import PeerClosed, PeerError
from rmq.protocol import fastjson
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.bodies.heartbeat import ConsumerData
from rmq.protocol.bodies.queues import GetConsumerStatusBody, ResetOffsetBody
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.records import decode_stored


@pytest.fixture
def online(caller, make_connection):
    """Return a function that brings a member of group G online."""
    ports = iter(range(41_000, 42_000))

    def connect(client_id="c@1", version=513):
        connection = make_connection(port=next(ports))
        connection.answer = lambda command, _: Command(0, {"x": "y"}, b"{}", "said")
        data = ConsumerData(
            group_name="G",
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            subscription_data_set=[],
        )
        caller.broker.groups.find("G")
        caller.broker.consumers.register(
            data, client_id, connection, "JAVA", version, 0
        )
        connection.sent.clear()
        return connection

    return connect


def running_info(caller, client="c@1", group="G"):
    fields = {"consumerGroup": group, "clientId": client, "jstackEnable": "true"}
    return caller.call(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)


def test_running_info_is_passed_on_and_back(caller, online):
    other, consumer = online("c@0"), online()
    other.sent.clear()
    answer = running_info(caller)
    assert (answer.code, answer.remark, answer.body) == (0, "said", b"{}")
    assert answer.ext_fields == {"x": "y"}
    (question,) = consumer.sent
    assert question.code == 307
    assert question.ext_fields["jstackEnable"] == "true"
    assert not other.sent


@pytest.mark.parametrize(("client", "group"), [("c@2", "G"), ("c@1", "Nobody")])
def test_nobody_to_ask(caller, online, client, group):
    online()
    answer = running_info(caller, client, group)
    remark = f"The Consumer <{group}> <{client}> not online"
    assert (answer.code, answer.remark) == (1, remark)


def test_clients_that_are_too_old(caller, online):
    online(version=61)
    answer = running_info(caller)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "too low to finish, please upgrade it to V3_1_8_SNAPSHOT" in answer.remark


def test_a_client_that_says_nothing(caller, online):
    consumer = online()
    consumer.answer = type(consumer).answer.__get__(consumer)
    answer = running_info(caller)
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert answer.remark.startswith("consumer <G> <c@1> Timeout: ")


@pytest.mark.parametrize("error", [PeerClosed, PeerError])
def test_a_client_that_goes_away_or_speaks_grpc(caller, online, error):
    def leave(*_):
        raise error("gone")

    online().answer = leave
    answer = running_info(caller)
    remark = "invoke consumer <G> <c@1> Exception: gone"
    assert (answer.code, answer.remark) == (1, remark)


def test_a_message_is_consumed_directly(caller, online):
    consumer = online()
    caller.send(body=b"once more")
    (record,) = decode_stored(caller.broker.store.reads.get("T", 0, 0, 1).body)
    fields = {
        "consumerGroup": "G",
        "clientId": "c@1",
        "msgId": record.offset_msg_id,
        "topic": "T",
    }
    assert caller.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields).code == 0
    (question,) = consumer.sent
    assert decode_stored(question.body) == [record]
    assert question.ext_fields["brokerName"] == "broker-a"
    assert question.ext_fields["topicSysFlag"] == "0"
    assert question.ext_fields["groupSysFlag"] == "0"


@pytest.mark.parametrize(
    "message_id", ["X", "", "0" * 31, "0" * 32, "F" * 32, "0" * 56]
)
def test_ids_of_no_message(caller, online, message_id):
    consumer = online()
    fields = {"consumerGroup": "G", "clientId": "c@1", "msgId": message_id}
    assert (
        caller.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields).code
        == ResponseCode.SYSTEM_ERROR
    )
    assert not consumer.sent


def reset(caller, version=513, **more):
    fields = {"group": "G", "topic": "T", "timestamp": 0, "isForce": "true", **more}
    return caller.call(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields, version=version
    )


def table(answer):
    decoded = ResetOffsetBody.decode(answer.body).offset_table
    return {queue.queue_id: offset for queue, offset in decoded.items()}


@pytest.fixture
def filled(caller, clock):
    """Three messages in queue 0 of T, a second apart; the group is at its end."""
    caller.broker.groups.find("G")
    for _ in range(3):
        caller.send()
        clock.ms += 1_000
    for queue_id, offset in ((0, 3), (1, 0)):
        caller.broker.offsets.commit("c", "G", "T", queue_id, offset)
    return clock.ms - 3_000


@pytest.mark.parametrize(("after_ms", "expected"), [(0, 0), (500, 1), (2_000, 2)])
def test_a_reset_to_a_time(caller, filled, after_ms, expected):
    answer = reset(caller, timestamp=filled + after_ms)
    assert (answer.code, table(answer)) == (0, {0: expected, 1: 0})
    assert caller.broker.offsets.query("G", "T", 0) == expected


def test_a_reset_to_the_end(caller, filled):
    caller.broker.offsets.commit("c", "G", "T", 0, 1)
    assert table(reset(caller, timestamp=-1)) == {0: 3, 1: 0}


def test_a_reset_of_one_queue_to_an_offset(caller, filled):
    assert table(reset(caller, queueId=0, offset=2)) == {0: 2}


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "None"}, 17, "Topic None does not exist"),
        ({"group": "None"}, 26, "Group None does not exist"),
        ({"queueId": 0, "offset": 5}, 1,
         "Target offset 5 not in consume queue range [0-3]"),
        ({"queueId": 7, "offset": 0}, 1, "No queues to reset."),
    ],
)  # fmt: skip
def test_resets_that_are_refused(caller, filled, fields, code, remark):
    answer = reset(caller, **fields)
    assert (answer.code, answer.remark) == (code, remark)
    assert caller.broker.offsets.query("G", "T", 0) == 3


def test_a_consumer_is_told_at_its_next_pull(caller, filled):
    reset(caller, queueId=0, offset=1)
    commit = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 3}
    answer = caller.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
    answer = caller.pull(offset=3, sysFlag=5, commitOffset=3)
    assert (answer.code, answer.remark) == (21, "OFFSET_RESET")
    assert answer.ext_fields["nextBeginOffset"] == "1"
    assert caller.broker.offsets.query("G", "T", 0) == 1
    assert caller.pull(offset=1).code == 0
    assert caller.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit).remark is None
    assert caller.broker.offsets.query("G", "T", 0) == 3


@pytest.fixture
def pushing(make_caller):
    return make_caller(use_server_side_reset_offset=False)


class TestPushed:
    """Resets that the clients carry out themselves."""

    @pytest.fixture
    def caller(self, pushing):
        return pushing

    def test_every_member_hears_it(self, caller, online, filled):
        members = [online("c@1"), online("c@2")]
        for member in members:
            member.sent.clear()
        answer = reset(caller, timestamp=filled)
        assert (answer.code, table(answer)) == (0, {0: 0, 1: 0})
        for member in members:
            (push,) = member.sent
            assert (push.code, push.is_oneway) == (220, True)
            assert push.ext_fields["group"] == "G"
            assert table(push) == {0: 0, 1: 0}
        assert caller.broker.offsets.query("G", "T", 0) == 3

    @pytest.mark.parametrize(("force", "expected"), [("false", 1), ("true", 2)])
    def test_only_force_goes_forward(self, caller, online, filled, force, expected):
        online()
        caller.broker.offsets.commit("c", "G", "T", 0, 1)
        answer = reset(caller, timestamp=filled + 2_000, isForce=force)
        assert table(answer)[0] == expected

    @pytest.mark.parametrize(
        ("fields", "code"), [({"topic": "None"}, 17), ({"group": "X"}, 1), ({}, 206)]
    )
    def test_refused(self, caller, filled, fields, code):
        assert reset(caller, **fields).code == code

    def test_old_members(self, caller, online, filled):
        member = online(version=27)
        assert reset(caller).code == ResponseCode.SYSTEM_ERROR
        assert not member.sent


def test_tools_in_c_have_a_body_of_their_own(caller, online, filled):
    member = online()
    fields = {"group": "G", "topic": "T", "timestamp": filled, "isForce": "true"}
    request = Command(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        {k: str(v) for k, v in fields.items()},
        language="CPP",
    )
    assert caller.handle(request).code == 0
    rows = json.loads(member.sent[0].body)["offsetTable"]
    assert rows[0] == {
        "brokerName": "broker-a",
        "offset": 0,
        "queueId": 0,
        "topic": "T",
    }


def test_status_of_all_members_and_of_one(caller, online):
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)

    def says(offset):
        body = GetConsumerStatusBody(message_queue_table={queue: offset}).encode()
        return lambda *_: Command(0, body=body)

    for number in (1, 2):
        online(f"c@{number}").answer = says(number)
    online("c@3")
    fields = {"topic": "T", "group": "G"}
    body = GetConsumerStatusBody.decode(
        caller.call(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields).body
    )
    assert body.consumer_table == {"c@1": {queue: 1}, "c@2": {queue: 2}, "c@3": {}}
    one = caller.call(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        {**fields, "clientAddr": "c@2"},
    )
    assert list(fastjson.load_json(one.body)["consumerTable"]) == ["c@2"]


def test_status_of_a_group_that_is_not_online(caller):
    assert (
        caller.call(
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            {"topic": "T", "group": "G"},
        ).code
        == ResponseCode.SYSTEM_ERROR
    )
