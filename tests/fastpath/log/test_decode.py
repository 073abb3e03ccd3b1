import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath.log.decode import (
    RecordStatus,
    RecordView,
    check_record,
    decode_record,
)
from rmq._fastpath.log.layout import RecordLayout
from tests.model.record import MAGIC_BLANK, MAGIC_V1, ModelRecord, status_of

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
HOST = st.sampled_from([8, 20]).flatmap(lambda n: st.binary(min_size=n, max_size=n))
RECORDS = st.builds(
    ModelRecord,
    topic=st.text(min_size=1, max_size=80).map(str.encode),
    queue_id=I32,
    queue_offset=I64,
    physical_offset=I64,
    flag=I32,
    sys_flag=I32,
    born_ms=I64,
    born_host=HOST,
    store_ms=I64,
    store_host=HOST,
    reconsume_times=I32,
    prepared_offset=I64,
    body=st.binary(max_size=200),
    properties=st.binary(max_size=100),
)
SAMPLE = ModelRecord(b"topic", body=b"body", properties=b"k\x01v\x02")
COPIED = [
    "queue_id",
    "queue_offset",
    "physical_offset",
    "flag",
    "born_ms",
    "born_host",
    "store_ms",
    "store_host",
    "reconsume_times",
    "prepared_offset",
    "body",
    "properties",
    "magic",
]


def patched(data: bytes, at: int, layout: str, value: int) -> bytes:
    result = bytearray(data)
    struct.pack_into(layout, result, at, value)
    return bytes(result)


@given(record=RECORDS, before=st.binary(max_size=9), after=st.binary(max_size=9))
@settings(max_examples=50)
def test_any_record_comes_back_field_by_field(record, before, after):
    encoded = record.encode()
    data = before + encoded + after
    assert check_record(data, len(before)) == (RecordStatus.OK, len(encoded))
    decoded = decode_record(data, len(before))
    for name in COPIED:
        assert getattr(decoded, name) == getattr(record, name), name
    assert decoded.topic.encode() == record.topic
    assert decoded.sys_flag == record.stored_sys_flag
    assert decoded.size == len(encoded)


@given(
    record=RECORDS,
    data=st.data(),
    check_crc=st.booleans(),
)
@settings(max_examples=50)
def test_any_damage_is_judged_as_by_the_model(record, data, check_crc):
    damaged = bytearray(record.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(
            st.integers(0, 255)
        )
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    status, size = check_record(bytes(damaged), check_crc=check_crc)
    assert status.name == status_of(bytes(damaged), check_crc=check_crc)
    assert size == (len(damaged) if status is RecordStatus.OK else 0)


@given(
    at=st.sampled_from([0, 4, 36, 80]),
    value=st.one_of(I32, st.integers(-200, 200)),
    tail=st.integers(-140, 140),
    short=st.integers(-(2**15), 2**15 - 1),
)
def test_hostile_lengths_are_judged_as_by_the_model(at, value, tail, short):
    data = patched(SAMPLE.encode() + bytes(150), at, ">i", value)
    assert check_record(data)[0].name == status_of(data)
    end = len(SAMPLE.encode()) + 150
    data = patched(data, max(0, end - 152 + tail), ">h", short)[:end]
    assert check_record(data)[0].name == status_of(data)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", "SHORT"),
        (bytes(7), "SHORT"),
        (bytes(8), "END"),
        (struct.pack(">iI", 0, MAGIC_BLANK), "BLANK"),
        (struct.pack(">iI", 1234, MAGIC_BLANK), "BLANK"),
        (struct.pack(">iI", 91, 0) + bytes(90), "BAD_MAGIC"),
        (struct.pack(">iI", 0, MAGIC_V1), "BAD_SIZE"),
        (struct.pack(">iI", -1, MAGIC_V1), "BAD_SIZE"),
        (struct.pack(">iI", 90, MAGIC_V1) + bytes(90), "BAD_SIZE"),
        (struct.pack(">iI", 91, MAGIC_V1) + bytes(82), "SHORT"),
        (struct.pack(">iI", 2**31 - 1, MAGIC_V1) + bytes(90), "SHORT"),
        (struct.pack(">iI", 91, MAGIC_V1) + bytes(83), "OK"),
    ],
)
def test_edges(data, status):
    assert check_record(data)[0].name == status == status_of(data)
    if status != "OK":
        with pytest.raises(ValueError, match="no record at 0"):
            decode_record(data)


def test_sizes_are_signed_as_java_reads_them():
    for record, size_at, layout, size in (
        (ModelRecord(b"t" * 127), 88, ">B", 128),
        (ModelRecord(b"t" * 200), 88, ">H", 32_768),
    ):
        data = patched(record.encode(), size_at, layout, size)
        longer = data[:size_at] + data[size_at:].replace(record.topic, b"t" * size)
        longer = patched(longer, 0, ">i", len(longer))
        assert check_record(longer)[0] is RecordStatus.BAD_LENGTHS
    data = ModelRecord(b"t").encode()
    data = patched(data, len(data) - 2, ">H", 32_768) + bytes(32_768)
    data = patched(data, 0, ">i", len(data))
    assert check_record(data)[0] is RecordStatus.BAD_LENGTHS


def test_crc_is_checked_only_of_a_body_and_on_demand():
    data = patched(SAMPLE.encode(), RecordLayout.BODY_CRC_AT, ">i", 1)
    assert check_record(data)[0] is RecordStatus.BAD_CRC
    assert check_record(data, check_crc=False)[0] is RecordStatus.OK
    empty = patched(ModelRecord(b"t").encode(), RecordLayout.BODY_CRC_AT, ">i", 1)
    assert check_record(empty)[0] is RecordStatus.OK


def test_topic_that_is_not_text_is_a_value_error():
    with pytest.raises(ValueError, match="utf-8"):
        decode_record(ModelRecord(b"\xff\xfe").encode())


def test_positions_outside_are_refused():
    data = SAMPLE.encode()
    assert check_record(data, len(data)) == (RecordStatus.SHORT, 0)
    for position in (-1, len(data) + 1):
        with pytest.raises(IndexError):
            check_record(data, position)
        with pytest.raises(ValueError, match=f"no record at {position}"):
            decode_record(data, position)


@given(RECORDS, st.binary(max_size=30), st.binary(max_size=30))
def test_a_view_reads_what_a_record_has(record, before, after):
    view = RecordView(before + record.encode() + after, len(before))
    assert view.is_message
    assert view.size == len(record.encode())
    for name in ("queue_id", "queue_offset", "physical_offset", "store_ms"):
        assert getattr(view, name) == getattr(record, name), name
    assert view.properties == record.properties


def test_the_head_of_a_record_has_all_but_its_properties():
    data = ModelRecord(b"t", store_ms=7, born_host=bytes(20)).encode()
    head = RecordView(data[: RecordLayout.HEAD_SIZE])
    assert (head.size, head.store_ms) == (len(data), 7)
    with pytest.raises(ValueError, match="SHORT"):
        assert head.properties


@pytest.mark.parametrize(
    "name", ["size", "is_message", "queue_id", "queue_offset", "physical_offset",
             "store_ms", "properties"],
)  # fmt: skip
def test_a_view_does_not_read_beyond_its_buffer(name):
    data = SAMPLE.encode()
    with pytest.raises(ValueError, match="only 3 bytes"):
        getattr(RecordView(data[:5], 2), name)
    with pytest.raises(ValueError, match="outside"):
        RecordView(data, len(data) + 1)
    with pytest.raises(ValueError, match="outside"):
        RecordView(data, -1)


def test_a_blank_is_no_message():
    assert not RecordView(struct.pack(">iI", 100, MAGIC_BLANK)).is_message
