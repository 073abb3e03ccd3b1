import pytest

from rmq.core.errors import RequestRejected
from rmq.protocol.codes import WIRE_VERSION, RequestCode, ResponseCode, SerializeType
from rmq.protocol.command import Command
from rmq.protocol.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
)

HEADER = GetMaxOffsetRequestHeader(topic="T", queue_id=3)


def test_request():
    command = Command.request(RequestCode.GET_MAX_OFFSET, HEADER, b"body")
    assert command.ext_fields == {"topic": "T", "queueId": "3", "committed": "true"}
    assert command.body == b"body"
    assert (command.language, command.version) == ("PYTHON", WIRE_VERSION)
    assert not command.is_oneway
    assert not command.is_response


def test_oneway_request():
    assert Command.request(RequestCode.HEART_BEAT, oneway=True).is_oneway


def test_reply_takes_number_and_serialisation_of_its_request():
    request = Command.request(RequestCode.GET_MAX_OFFSET, HEADER)
    request.opaque = 17
    request.serialize_type = SerializeType.ROCKETMQ
    reply = request.reply(header=GetMaxOffsetResponseHeader(offset=9))
    assert reply.is_response
    assert reply.code == ResponseCode.SUCCESS
    assert reply.opaque == 17
    assert reply.serialize_type is SerializeType.ROCKETMQ
    assert reply.ext_fields == {"offset": "9"}


def test_reply_to_a_oneway_request_is_an_ordinary_response():
    assert (
        not Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, oneway=True)
        .reply()
        .is_oneway
    )


def test_extra_fields_of_a_reply_come_after_those_of_its_header():
    reply = Command.request(RequestCode.GET_MAX_OFFSET).reply(
        header=GetMaxOffsetResponseHeader(offset=9),
        ext_fields={"TRACE_ON": "true", "offset": "10"},
    )
    assert list(reply.ext_fields.items()) == [("offset", "10"), ("TRACE_ON", "true")]


def test_refusal():
    reply = Command.request(RequestCode.GET_MAX_OFFSET).reply(
        ResponseCode.TOPIC_NOT_EXIST, "no such topic"
    )
    assert (reply.code, reply.remark, reply.ext_fields) == (17, "no such topic", {})


def test_responses_are_not_answered():
    with pytest.raises(AssertionError):
        Command.request(RequestCode.GET_MAX_OFFSET).reply().reply()


def test_typed_header():
    command = Command.request(RequestCode.GET_MAX_OFFSET, HEADER)
    assert command.header(GetMaxOffsetRequestHeader) == HEADER


def test_missing_header_field_is_named():
    with pytest.raises(RequestRejected, match="queueId") as caught:
        Command(30, {"topic": "T"}).header(GetMaxOffsetRequestHeader)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
