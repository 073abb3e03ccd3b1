import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.core.errors import RemoteProtocolError
from rmq.protocol.hosts import host_bytes, host_text
from rmq.protocol.records import decode_stored, offset_message_id

HOST = host_bytes("127.0.0.1", 10911)


def record(topic=b"T", body=b"body", properties=b"", magic=0xDAA320A7, sys_flag=0):
    """A stored record, written the obvious way."""
    host = HOST if not sys_flag & 0x10 else bytes(16) + HOST[4:]
    store_host = HOST if not sys_flag & 0x20 else bytes(16) + HOST[4:]
    rest = struct.pack(
        ">Iiiiqqiq", magic, zlib.crc32(body) & 0x7FFFFFFF, 2, 3, 4, 5, sys_flag, 6
    )
    rest += host + struct.pack(">q", 7) + store_host + struct.pack(">iq", 8, 9)
    rest += struct.pack(">i", len(body)) + body
    length = ">B" if magic == 0xDAA320A7 else ">h"
    rest += struct.pack(length, len(topic)) + topic
    rest += struct.pack(">h", len(properties)) + properties
    return struct.pack(">i", len(rest) + 4) + rest


def test_message_ids():
    assert offset_message_id(HOST, 0x1E7C8) == "7F00000100002A9F000000000001E7C8"
    assert len(offset_message_id(host_bytes("::1", 1), 0)) == 56


@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
@pytest.mark.parametrize("magic", [0xDAA320A7, 0xDAA320AB])
def test_stored_records(magic, sys_flag):
    one = record(magic=magic, sys_flag=sys_flag, properties=b"TAGS\x01A\x02")
    first, second = decode_stored(one + record(topic="Ü".encode(), body=b""))
    assert first.size == len(one)
    assert (first.topic, first.body, first.properties) == ("T", b"body", {"TAGS": "A"})
    assert (first.queue_id, first.flag, first.queue_offset) == (2, 3, 4)
    assert (first.physical_offset, first.sys_flag) == (5, sys_flag)
    assert (first.born_timestamp, first.store_timestamp) == (6, 7)
    assert (first.reconsume_times, first.prepared_transaction_offset) == (8, 9)
    assert host_text(first.born_host).endswith(":10911")
    assert first.offset_msg_id == offset_message_id(first.store_host, 5)
    assert (second.topic, second.body) == ("Ü", b"")


def test_a_record_longer_than_its_parts():
    data = struct.pack(">i", len(record()) + 1) + record()[4:] + b"\0"
    with pytest.raises(RemoteProtocolError, match="no record at 0: BAD_LENGTHS"):
        decode_stored(data)


@given(st.integers(0, 1000), st.integers(0, 255))
def test_damaged_records_are_read_or_refused(position, value):
    data = bytearray(record(properties=b"TAGS\x01A\x02"))
    data[position % len(data)] = value
    with suppress(RemoteProtocolError):
        decode_stored(bytes(data))


@given(st.binary(max_size=120))
def test_noise_is_no_record(noise):
    with suppress(RemoteProtocolError):
        decode_stored(noise)
