"""Text that only fastjson reads costs little, because it is parsed before any check."""

import math
import random
import struct
import time
import zlib

import pytest

from rmq.errors import RemoteProtocolError, RequestRejected
from rmq.protocol import fastjson
from rmq.protocol.bodies.heartbeat import HeartbeatData
from rmq.protocol.bodies.register import RegisterBrokerBody
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
    match = "up to 65536 are read"
    assert_quick(refused(lambda: decode_json_header(data, b""), match))


def test_a_header_of_the_dialect_has_4_kib():
    text = b"{code:10,remark:'%s'}"
    room = MAX_DIALECT_SIZE - len(text) + 2
    command = decode_json_header(text % (b"x" * room), b"")
    assert command.code == 10
    with pytest.raises(RemoteProtocolError, match="4096 of another dialect"):
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
        with pytest.raises(RequestRejected, match="deeper than 64"):
            RegisterBrokerBody.decode(data)


@pytest.mark.parametrize("unit", STRANGE)
def test_a_body_in_the_dialect(unit):
    data = filled(unit, 256 * 1024, b"{a:[", b"],clientID:'c'}")

    def act():
        return HeartbeatData.decode(data)

    assert_quick(refused(act, "a request may have") if b"{{" in unit else act)
