import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import LocalProtocolError, RemoteProtocolError, RequestRejected
from rmq.protocol.message import (
    BatchItem,
    Message,
    decode_batch,
    decode_stored,
    encode_batch,
    host_bytes,
    host_text,
    offset_message_id,
)

HOST = host_bytes("127.0.0.1", 10911)
items = st.lists(
    st.builds(
        BatchItem,
        flag=st.integers(-(2**31), 2**31 - 1),
        body=st.binary(max_size=50),
        properties_text=st.text(max_size=20),
    ),
    max_size=5,
)


def message(**fields):
    defaults = {
        "topic": "T", "queue_id": 0, "body": b"b", "flag": 0, "sys_flag": 0,
        "born_timestamp": 1, "born_host": HOST,
    }  # fmt: skip
    return Message(**defaults | fields)


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


def test_unedited_properties_are_stored_as_received():
    text = "a\x011\x02a\x012"
    assert (
        message(properties={"a": "2"}, properties_text=text).stored_properties() == text
    )


def test_edited_properties_are_written_anew():
    edited = message(properties={"a": "1"}, properties_text="a\x011")
    edited.set_property("b", "2")
    assert edited.stored_properties() == "a\x011\x02b\x012\x02"
    assert edited.remove_property("a") == "1"
    assert edited.stored_properties() == "b\x012\x02"


def test_removing_what_is_not_there_changes_nothing():
    text = "a\x011"
    untouched = message(properties={"a": "1"}, properties_text=text)
    assert untouched.remove_property("b") is None
    assert untouched.stored_properties() == text


@given(items)
def test_batch_round_trip(batch):
    assert decode_batch(encode_batch(batch)) == batch


@given(items.filter(bool), st.integers(0, 10_000))
def test_a_batch_cut_short_is_rejected_or_loses_items(batch, size):
    body = encode_batch(batch)
    with suppress(RequestRejected):
        kept = decode_batch(body[: size % len(body)])
        assert kept == batch[: len(kept)]


@given(st.binary(max_size=80))
def test_noise_is_rejected_with_message_illegal(noise):
    with suppress(RequestRejected):
        assert encode_batch(decode_batch(noise)) is not None


def item(size=None, body_size=None, properties_size=None, body=b"xy", properties=b"p"):
    return struct.pack(
        f">iiiii{len(body)}sh{len(properties)}s",
        22 + len(body) + len(properties) if size is None else size,
        0, 0, 0,
        len(body) if body_size is None else body_size,
        body,
        len(properties) if properties_size is None else properties_size,
        properties,
    )  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        item(size=24), item(size=0), item(size=-1), item(size=2**31 - 1),
        item(body_size=-1), item(body_size=2**31 - 1), item(body_size=1),
        item(properties_size=-1), item(properties_size=500),
        item(properties=b"\xff"), item()[:-1], item() + b"\0",
    ],
)  # fmt: skip
def test_lengths_that_lie(body):
    with pytest.raises(RequestRejected) as caught:
        decode_batch(body)
    assert caught.value.code == 13
    assert "batch item at byte" in caught.value.remark


def test_an_item_that_is_right():
    assert decode_batch(item()) == [BatchItem(0, b"xy", "p")]


def test_hosts():
    assert HOST == b"\x7f\0\0\x01\0\0\x2a\x9f"
    assert host_text(HOST) == "127.0.0.1:10911"
    v6 = host_bytes("fd00::2%eth0", 80)
    assert len(v6) == 20
    assert host_text(v6) == "fd00::2:80"


@pytest.mark.parametrize(
    ("host", "port"), [("localhost", 1), ("1.2.3", 1), ("1.2.3.4", 2**31)]
)
def test_what_is_no_address(host, port):  # fmt: skip
    with pytest.raises(LocalProtocolError):
        host_bytes(host, port)


def test_a_packed_host_has_two_sizes():
    with pytest.raises(LocalProtocolError):
        host_text(b"1234")


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
