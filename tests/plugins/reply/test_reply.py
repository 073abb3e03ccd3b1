"""Replies: pushed to the client that asked, stored, and the remarks if that fails."""

import pytest

from rmq.core.errors import PeerClosed
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.send import ReplyMessageRequestHeader
from rmq.protocol.properties import decode_properties
from rmq.protocol.records import decode_stored

TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01c@1\x02CORRELATION_ID\x017\x02"


@pytest.fixture
def waiting(caller, make_connection):
    """The connection of a client that waits for replies, and takes them."""
    connection = make_connection(port=40_002)
    connection.answer = lambda command, _: Command(0)
    caller.broker.producers.register("PG", "c@1", connection, "JAVA", 513, 0)
    return connection


def reply(caller, **more):
    fields = {"topic": TOPIC, "properties": PROPERTIES, "code": 324, **more}
    return caller.send(body=b"answer", **fields)


def stored(caller, topic=TOPIC):
    return decode_stored(caller.broker.store.reads.get(topic, 0, 0, 32).body)


def test_a_reply_reaches_the_client(caller, clock, waiting):
    answer = reply(caller, flag=5)
    assert answer.code == 0
    (push,) = waiting.sent
    assert (push.code, push.body) == (326, b"answer")
    header = push.header(ReplyMessageRequestHeader)
    assert (header.topic, header.queue_id, header.flag) == (TOPIC, 0, 5)
    assert header.born_host == caller.connection.remote_address
    assert header.store_host == "127.0.0.1:10911"
    assert header.store_timestamp == clock.ms
    properties = decode_properties(header.properties)
    assert properties == {
        **decode_properties(PROPERTIES),
        "PUSH_REPLY_TIME": str(clock.ms),
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_a_reply_is_stored_too(caller, waiting):
    answer = reply(caller)
    (record,) = stored(caller)
    assert record.body == b"answer"
    assert "PUSH_REPLY_TIME" not in record.properties
    assert answer.ext_fields == {
        "msgId": record.offset_msg_id,
        "queueId": "0",
        "queueOffset": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_a_reply_that_is_not_stored_has_no_place(make_caller, make_connection):
    caller = make_caller(store_reply_message_enable=False)
    waiting = make_connection()
    waiting.answer = lambda command, _: Command(0)
    caller.broker.producers.register("PG", "c@1", waiting, "JAVA", 513, 0)
    answer = reply(caller)
    assert answer.code == 0
    assert answer.ext_fields["msgId"] == answer.ext_fields["queueOffset"] == "0"
    assert caller.broker.store.log.end_offset == 0


def gone(command, _):
    raise PeerClosed("gone")


@pytest.mark.parametrize(
    "answer", [gone, None, lambda *_: Command(1)], ids=["gone", "silent", "refused"]
)
def test_a_push_that_fails(caller, waiting, answer):
    waiting.answer = answer or type(waiting).answer.__get__(waiting)
    result = reply(caller)
    assert (result.code, result.remark) == (1, "push reply message to c@1fail.")
    assert len(stored(caller)) == 1


def test_nobody_waits(caller, waiting):
    caller.broker.producers.on_close(waiting)
    result = reply(caller)
    remark = "push reply message fail, channel of c@1 not found."
    assert (result.code, result.remark) == (1, remark)
    assert len(stored(caller)) == 1


def test_a_newer_connection_of_the_client_counts(caller, waiting, make_connection):
    newer = make_connection(port=40_003)
    newer.answer = waiting.answer
    caller.broker.producers.register("PG", "c@1", newer, "JAVA", 513, 0)
    caller.broker.producers.on_close(waiting)
    assert reply(caller).code == 0
    assert len(newer.sent) == 1


def test_a_message_that_is_no_reply(caller, waiting):
    result = reply(caller, properties="KEYS\x01k\x02")
    assert result.code == ResponseCode.SYSTEM_ERROR
    assert result.remark == "reply message properties[REPLY_TO_CLIENT] is null"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "../../x"}, 29),
        ({"topic": "None", "defaultTopic": "None"}, 17),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16),
        ({"queueId": 9}, 29),
    ],
)
def test_what_is_refused_reaches_nobody(caller, waiting, fields, code):
    assert reply(caller, **fields).code == code
    assert not waiting.sent
    assert caller.broker.store.log.end_offset == 0


def test_the_short_names_say_the_same(caller, waiting):
    fields = dict(zip("abcdefghijkm", [
        "PG", TOPIC, "TBW102", 4, 0, 0, 1, 0, PROPERTIES, 0, "false", "false",
    ], strict=True))  # fmt: skip
    assert caller.call(RequestCode.SEND_REPLY_MESSAGE_V2, fields, b"answer").code == 0
    assert len(waiting.sent) == 1
