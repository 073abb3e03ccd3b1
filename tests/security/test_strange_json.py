"""Text that only fastjson reads costs little, because it is parsed before any check."""

import json
import math
import random
import struct
import time
import zlib

import pytest

from rmq.core.errors import RemoteProtocolError, RequestRejected
from rmq.protocol import fastjson
from rmq.protocol.bodies.heartbeat import HeartbeatData
from rmq.protocol.bodies.register import RegisterBrokerBody
from rmq.protocol.codes import ResponseCode
from rmq.protocol.json_header import (
    MAX_DIALECT_SIZE,
    MAX_LENIENT_SIZE,
    decode_json_header,
)

LIMIT_S = 0.05


def assert_quick(action, times=1):
    """The best of three, because a collection of garbage takes long in a test run."""
    best = math.inf
    for _ in range(3):
        began = time.thread_time()
        for _ in range(times):
            action()
        best = min(best, time.thread_time() - began)
    assert best < LIMIT_S


def refused(action, match):
    def act():
        with pytest.raises((RemoteProtocolError, RequestRejected), match=match):
            action()

    return act


def filled(unit, size, start=b"{a:[", end=b"]}"):
    return start + unit * ((size - len(start) - len(end)) // len(unit)) + end


def piece(data):
    return struct.pack(">i", len(data)) + data


def registration(topics=(), mappings=()):
    parts = [piece(b"{}"), struct.pack(">i", len(topics)), *map(piece, topics)]
    parts += [piece(b"[]"), struct.pack(">i", len(mappings)), *map(piece, mappings)]
    return zlib.compress(b"".join(parts), 9)


STRANGE = [b"[],", b"{},", b"'',", b"1,", b"{{}:1},", b"{{a:1}:1},", b"[[[[]]]],"]


@pytest.mark.parametrize("unit", STRANGE)
def test_a_large_strange_header_is_refused(unit):
    data = filled(unit, 256 * 1024)
    match = "may have 65536 bytes"
    assert_quick(refused(lambda: decode_json_header(data, b""), match))


def test_a_header_of_the_dialect_has_4_kib():
    text = b"{code:10,remark:'%s'}"
    room = MAX_DIALECT_SIZE - len(text) + 2
    command = decode_json_header(text % (b"x" * room), b"")
    assert command.code == ResponseCode.FLUSH_DISK_TIMEOUT
    with pytest.raises(
        RemoteProtocolError, match="at most 4096 bytes may be in another dialect"
    ):
        decode_json_header(text % (b"x" * (room + 1)), b"")


def test_a_standard_header_with_numbers_may_be_longer():
    """As C++ clients send it, with all properties that a message can have."""
    text = b'{"code":10,"extFields":{"queueId":4,"properties":"%s"}}'
    command = decode_json_header(text % (b"x" * 32_767), b"")
    assert command.ext_fields["queueId"] == "4"
    assert len(command.ext_fields["properties"]) == 32_767
    with pytest.raises(RemoteProtocolError):
        decode_json_header(text % (b"x" * MAX_LENIENT_SIZE), b"")


@pytest.mark.parametrize("unit", STRANGE)
def test_a_strange_header_that_is_read_is_read_quickly(unit):
    data = filled(unit, MAX_DIALECT_SIZE)

    def act():
        return decode_json_header(data, b"")

    assert_quick(refused(act, "as names") if b"{{" in unit else act, times=10)


@pytest.mark.parametrize("unit", STRANGE)
def test_a_compressed_registration_full_of_it(unit):
    """It was 14.9 s: 28,454 bytes that hold 8 MB, in 31 mappings of 256 KiB."""
    mapping = filled(unit, 256 * 1024)
    data = registration(mappings=[mapping] * 31)
    assert len(data) < 30_000
    assert_quick(refused(lambda: RegisterBrokerBody.decode(data), "longer than"))


def test_mappings_have_one_budget():
    """A stored block compresses nothing, so that only the budget can refuse."""
    mapping = (
        b'{"topic":"T","a":' + filled(b'{{"b":"%s"}:2},' % (b"x" * 90), 60_000) + b"}"
    )
    assert len(mapping) < fastjson.MAX_STRANGE_SIZE < 3 * len(mapping)

    def decode(count):
        data = zlib.decompress(registration(mappings=[mapping] * count))
        return RegisterBrokerBody.decode(zlib.compress(data, 0))

    assert decode(2).topic_config_serialize_wrapper.topic_queue_mapping_info_map
    with pytest.raises(RequestRejected, match="a request may have"):
        decode(3)


def test_more_topics_than_bytes_are_none():
    names = random.Random(1).choices(b"abcdefgh", k=2_000)
    data = registration([b"%c 8 8 6 S {}" % name for name in names])
    assert len(data) < 2_000
    with pytest.raises(RequestRejected, match="2000 topics in"):
        RegisterBrokerBody.decode(data)


def test_ten_thousand_topics_of_an_honest_broker():
    text = b'Topic%06d 8 8 6 SINGLE_TAG {"message.type":"NORMAL","+a":"DELETE"}'
    data = registration([text % i for i in range(10_000)])
    wrapper = RegisterBrokerBody.decode(data).topic_config_serialize_wrapper
    assert len(wrapper.topic_config_table) == 10_000


def test_static_topics_of_an_honest_broker():
    """Java writes the numbers of queues without quotes, in every mapping."""
    text = b'{"bname":"a","currIdMap":{0:0,1:1},"topic":"T%d","totalQueues":8}'
    data = registration(mappings=[text % i for i in range(4_000)])
    wrapper = RegisterBrokerBody.decode(data).topic_config_serialize_wrapper
    mapping = wrapper.topic_queue_mapping_info_map["T3999"]
    assert mapping["currIdMap"] == {"0": 0, "1": 1}


def test_a_mapping_that_is_too_deep_to_be_written_again():
    deep = b'{"topic":"T","a":' + b"[" * 200 + b"]" * 200 + b"}"
    text = b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"T":%s}}}'
    for data in (registration(mappings=[deep]), text % deep):
        with pytest.raises(RequestRejected, match="more than 64 levels"):
            RegisterBrokerBody.decode(data)


@pytest.mark.parametrize("unit", STRANGE)
def test_a_body_in_the_dialect(unit):
    data = filled(unit, 256 * 1024, b"{a:[", b"],clientID:'c'}")

    def act():
        return HeartbeatData.decode(data)

    assert_quick(refused(act, "a request may have") if b"{{" in unit else act)


def plain_registration(count):
    """A document as brokers write it, with attributes, mappings and odd topics."""
    topics = {
        f"topic{n}": {"topicName": f"topic{n}", "perm": 6, "attributes": {"+a": "b"}}
        for n in range(count)
    }
    mappings = {
        f"topic{n}": {"topic": f"topic{n}", "currIdMap": {"0": n}}
        for n in range(count // 10)
    }
    wrapper = {
        "dataVersion": {"counter": 7},
        "topicConfigTable": topics,
        "topicQueueMappingInfoMap": mappings,
    }
    document = {"filterServerList": ["f"], "topicConfigSerializeWrapper": wrapper}
    return json.dumps(document, separators=(",", ":")).encode()


def in_steps(body):
    """The body, and how long its longest step took."""
    steps = RegisterBrokerBody.document_steps(body, 513)
    longest_s, result = 0.0, None
    while result is None:
        began_s = time.process_time()
        result = next(steps)
        longest_s = max(longest_s, time.process_time() - began_s)
    return result, longest_s


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 5_000])
def test_a_large_document_is_read_in_steps_to_the_same(count):
    body = plain_registration(count)
    assert in_steps(body)[0] == RegisterBrokerBody.decode(body)


@pytest.mark.parametrize(
    "odd",
    [
        b'"odd":null,', b'"o\\"d":{},', b'"odd":{"topicName":"\\\\"},',
        b'"odd" : { "perm" : "4" } ,', b'"odd":{"attributes":{"a":"{"}},',
        b"odd:{perm:4},", b"'odd':{},",
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", [b'"topic0":', b'"topic600":'])
def test_what_cannot_be_cut_is_read_as_a_whole(odd, where):
    body = plain_registration(1_000).replace(where, odd + where, 1)
    assert in_steps(body)[0] == RegisterBrokerBody.decode(body)


@pytest.mark.slow
@pytest.mark.plain
def test_a_hundred_thousand_topics_of_a_document_let_others_run():
    """They were read in one piece, 0.2 s."""
    document = plain_registration(100_000)
    found = [in_steps(document) for _ in range(3)]
    for body, _ in found:
        assert len(body.topic_config_serialize_wrapper.topic_config_table) == 100_000
    assert min(longest_s for _, longest_s in found) < 0.02


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (
            plain_registration(20_000).replace(b'":{', b'" :{'),
            "outside of plain topics",
        ),
        (b"[" + b"{}," * 250_001 + b"{}]", "more than 250000 objects"),
    ],
)
def test_a_document_that_cannot_be_cut_has_a_limit(body, remark):
    with pytest.raises(RequestRejected, match=remark):
        in_steps(body)
