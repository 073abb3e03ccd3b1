"""What the protocol costs on the way of one message: run with `pytest bench/micro`.

The three steps of a send without a compiled handler are to take 5 µs together.
"""

import pytest

from rmq.protocol.bodies.heartbeat import HeartbeatData
from rmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from rmq.protocol.codes import RequestCode, SerializeType
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, decode, encode
from rmq.protocol.headers.send import (
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    decode_send_header,
)
from rmq.protocol.properties import decode_properties, encode_properties

FRAME_SIZE = 546
PROPERTIES = (
    "KEYS\x01k0 shared\x02UNIQ_KEY\x01FD0000000000000000000000000000026A4D4E0E2F2A6799"
    "42E00000\x02WAIT\x01true\x02TAGS\x01TagA\x02"
)
HEADER = SendMessageRequestHeaderV2(
    producer_group="producer-group",
    topic="BenchmarkTest",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=1,
    sys_flag=0,
    born_timestamp=1_795_229_297_377,
    flag=0,
    properties=PROPERTIES,
    reconsume_times=0,
    unit_mode=False,
    batch=False,
    broker_name="broker-a",
)
ANSWER = SendMessageResponseHeader(
    msg_id="7F0000010000000000000000000000AA",
    queue_id=1,
    queue_offset=12_345,
    transaction_id="FD0000000000000000000000000000026A4D4E0E2F2A679942E00000",
)
MARKS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def send_command(serialize_type: SerializeType) -> Command:
    """Build a SEND_MESSAGE_V2 whose frame has exactly the size that is quoted."""
    command = Command.request(RequestCode.SEND_MESSAGE_V2, HEADER)
    command.serialize_type = serialize_type
    command.opaque = 898
    command.body = bytes(FRAME_SIZE - len(encode(command)))
    assert len(encode(command)) == FRAME_SIZE
    return command


@pytest.fixture(params=SerializeType, ids=lambda kind: kind.name)
def command(request):
    return send_command(request.param)


@pytest.fixture
def reply(command):
    return command.reply(header=ANSWER, ext_fields=MARKS)


def test_decode_frame(benchmark, command):
    assert benchmark(decode, encode(command)).ext_fields == command.ext_fields


def test_decode_send_header(benchmark, command):
    benchmark(decode_send_header, command.code, command.ext_fields)


def test_build_reply(benchmark, command):
    benchmark(command.reply, header=ANSWER, ext_fields=MARKS)


def test_encode_reply(benchmark, reply):
    benchmark(encode, reply)


def test_send_path(benchmark, command, reply):
    frame = encode(command)

    def serve():
        request = decode(frame)
        decode_send_header(request.code, request.ext_fields)
        return encode(reply)

    benchmark(serve)


def test_frame_decoder(benchmark, command):
    stream = encode(command) * 100
    assert len(benchmark(lambda: FrameDecoder().feed(stream))) == 100


def test_decode_properties(benchmark):
    benchmark(decode_properties, PROPERTIES)


def test_encode_properties(benchmark):
    benchmark(encode_properties, decode_properties(PROPERTIES))


def test_encode_route(benchmark):
    route = TopicRouteData(
        queue_datas=[QueueData(broker_name="broker-a", read_queue_nums=4, perm=6)],
        broker_datas=[
            BrokerData(
                broker_name="broker-a", cluster="c", broker_addrs={0: "127.0.0.1:10911"}
            )
        ],
    )
    benchmark(route.encode)


def test_decode_heartbeat(benchmark):
    text = (
        b'{"clientID":"192.0.2.2@1","consumerDataSet":[{"consumeFromWhere":'
        b'"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"CG",'
        b'"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,'
        b'"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":1795228922910,'
        b'"tagsSet":[],"topic":"T"}],"unitMode":false}],"producerDataSet":[]}'
    )
    benchmark(HeartbeatData.decode, text)
