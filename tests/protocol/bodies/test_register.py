import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.core.errors import RequestRejected
from rmq.protocol.bodies import register
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.register import RegisterBrokerBody
from rmq.protocol.bodies.topics import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from rmq.protocol.codes import ResponseCode

WRAPPER = TopicConfigAndMappingSerializeWrapper(
    data_version=DataVersion(counter=3, timestamp=5),
    topic_config_table={
        "T": TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=8, perm=7),
        "U": TopicConfig(topic_name="U", attributes={"+message.type": "FIFO"}),
    },
)
BODY = RegisterBrokerBody(
    topic_config_serialize_wrapper=WRAPPER, filter_server_list=["1.2.3.4:5"]
)
TOPICS = [b"T 4 8 7 SINGLE_TAG {}", b'U 16 16 6 SINGLE_TAG {"+message.type":"FIFO"}']


def piece(data):
    return struct.pack(">i", len(data)) + data


def inflated(topics=TOPICS, servers=b'["1.2.3.4:5"]', mappings=()):
    parts = [piece(WRAPPER.data_version.encode()), struct.pack(">i", len(topics))]
    parts += map(piece, topics)
    parts += [piece(servers), struct.pack(">i", len(mappings)), *map(piece, mappings)]
    return b"".join(parts)


def test_plain():
    assert RegisterBrokerBody.decode(BODY.encode()) == BODY


def test_compressed():
    assert RegisterBrokerBody.decode(zlib.compress(inflated(), 9)) == BODY


def test_compressed_without_attributes_and_mappings():
    data = inflated([b"T 4 8 7 SINGLE_TAG"])[:-4]
    body = RegisterBrokerBody.decode(zlib.compress(data))
    table = body.topic_config_serialize_wrapper.topic_config_table
    assert table == {"T": WRAPPER.topic_config_table["T"]}


def test_compressed_with_mappings():
    data = zlib.compress(inflated(mappings=[b'{"topic":"T","totalQueues":4}']))
    wrapper = RegisterBrokerBody.decode(data).topic_config_serialize_wrapper
    assert wrapper.topic_queue_mapping_info_map["T"]["totalQueues"] == 4


def test_old_brokers_send_the_bare_table():
    assert RegisterBrokerBody.decode(
        WRAPPER.encode(), version=36
    ) == RegisterBrokerBody(topic_config_serialize_wrapper=WRAPPER)


def test_an_empty_body_registers_nothing():
    assert RegisterBrokerBody.decode(b"") == RegisterBrokerBody()


@pytest.mark.parametrize(
    "data",
    [
        b"x\x9cgarbage",
        zlib.compress(b""),
        zlib.compress(inflated())[:-10],
        zlib.compress(inflated()[:-5]),
        zlib.compress(inflated([b"T 4 8"])),
        zlib.compress(inflated([b"T four 8 7 SINGLE_TAG {}"])),
        zlib.compress(inflated([b"T 99999999999 8 7 SINGLE_TAG {}"])),
        zlib.compress(inflated([b"T 4 8 7 SINGLE_TAG nothing"])),
        zlib.compress(inflated([b"T 4 8 7 SINGLE_TAG [1]"])),
        zlib.compress(inflated(servers=b'{"a":1}')),
        zlib.compress(inflated(mappings=[b"[]"])),
        zlib.compress(piece(b"{}") + b"\x7f\xff\xff\xff"),
        zlib.compress(piece(b"{}") + b"\xff\xff\xff\xff"),
    ],
)
def test_what_is_malformed(data):
    with pytest.raises(RequestRejected, match="RegisterBrokerBody") as caught:
        RegisterBrokerBody.decode(data)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


def test_output_is_capped(monkeypatch):
    monkeypatch.setattr(register, "MAX_INFLATED_SIZE", 100)
    with pytest.raises(RequestRejected, match="longer than 100"):
        RegisterBrokerBody.decode(zlib.compress(bytes(1_000_000)))


@given(st.binary(max_size=60))
def test_noise_inside(noise):
    with suppress(RequestRejected):
        RegisterBrokerBody.decode(zlib.compress(noise))


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_damage_inside(position, value):
    data = bytearray(inflated())
    data[position % len(data)] = value
    with suppress(RequestRejected):
        RegisterBrokerBody.decode(zlib.compress(bytes(data)))
