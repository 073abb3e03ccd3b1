import ctypes
import socket
import struct
import zlib
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath.arrow.columns import COLUMNS, ColumnReader, find_record, walk_chain
from rmq._fastpath.log.decode import RecordStatus, decode_record
from rmq.protocol.batch import BatchItem, encode_batch
from tests.golden.recordings import read_rows
from tests.model.record import MAGIC_BLANK, ModelRecord

I32 = {"queueId", "flag", "sysFlag", "bodyCrc", "reconsumeTimes", "storeSize"}
I64 = {
    "queueOffset",
    "physicalOffset",
    "preparedTransactionOffset",
    "bornTimestamp",
    "storeTimestamp",
}
NULLABLE = {"tags", "keys"}
MAX_MS = (2**63 - 1) // 1000


def open_zlib(body: bytes, sys_flag: int) -> bytes:
    try:
        return zlib.decompress(body)
    except zlib.error as error:
        raise ValueError(str(error)) from error


def read_columns(reader, names, data, position=0, end=None, **limits):
    """One batch as a list of rows, read from plain memory as Arrow would."""
    measured = reader.measure(
        data, position, len(data) if end is None else end, **limits
    )
    buffers = [
        [ctypes.create_string_buffer(max(size, 1)) for size in sizes]
        for sizes in measured.sizes
    ]
    used = reader.fill(
        [tuple(ctypes.addressof(b) for b in column) for column in buffers]
    )
    columns = []
    for name, column, (nulls, sizes) in zip(names, buffers, used, strict=True):
        parts = [b.raw[:size] for b, size in zip(column, sizes, strict=True)]
        values = column_values(name, parts, measured.rows)
        assert nulls == values.count(None)
        columns.append(values)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return measured, rows


def column_values(name, parts, rows):
    if name in I32:
        return list(struct.unpack(f"{rows}i", parts[0]))
    if name in I64:
        return list(struct.unpack(f"{rows}q", parts[0]))
    if name == "properties":
        offsets, name_offsets, names, value_offsets, values = parts
        keys, items = texts(name_offsets, names), texts(value_offsets, values)
        pairs = list(
            zip(map(bytes.decode, keys), map(bytes.decode, items), strict=True)
        )
        bounds = struct.unpack(f"{rows + 1}i", offsets)
        maps = [pairs[a:b] for a, b in pairwise(bounds)]
        assert all(len(dict(m)) == len(m) for m in maps), "a name occurs twice"
        return [dict(m) for m in maps]
    values = texts(parts[-2], parts[-1])
    if name != "body":
        values = [value.decode() for value in values]
    if name in NULLABLE:
        bits = int.from_bytes(parts[0], "little")
        values = [v if bits >> i & 1 else None for i, v in enumerate(values)]
    return values


def texts(offsets, data):
    bounds = struct.unpack(f"{len(offsets) // 4}i", offsets)
    assert bounds[0] == 0
    assert bounds[-1] == len(data)
    return [data[a:b] for a, b in pairwise(bounds)]


def model_properties(text: str) -> dict[str, str]:
    result = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            result[name] = value
    return result


def model_host(packed: bytes) -> str:
    family = socket.AF_INET if len(packed) == 8 else socket.AF_INET6
    port = int.from_bytes(packed[-4:], "big", signed=True)
    return f"{socket.inet_ntop(family, packed[:-4])}:{port}"


def clamped(ms: int) -> int:
    return min(max(ms, -MAX_MS), MAX_MS) * 1000


def model_row(record: ModelRecord) -> dict:
    text = record.properties.decode("utf-8", "replace")
    properties = model_properties(text)
    identity = record.store_host + struct.pack(">q", record.physical_offset)
    offset_id = identity.hex().upper()
    return {
        "queueId": record.queue_id,
        "flag": record.flag,
        "sysFlag": record.stored_sys_flag,
        "bodyCrc": zlib.crc32(record.body) & 0x7FFFFFFF,
        "reconsumeTimes": record.reconsume_times,
        "storeSize": len(record.encode()),
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "preparedTransactionOffset": record.prepared_offset,
        "bornTimestamp": clamped(record.born_ms),
        "storeTimestamp": clamped(record.store_ms),
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "topic": record.topic.decode("utf-8", "replace"),
        "body": record.body,
        "propertiesText": text,
        "msgId": properties.get("UNIQ_KEY", offset_id),
        "offsetMsgId": offset_id,
        "bornHost": model_host(record.born_host),
        "storeHost": model_host(record.store_host),
        "properties": properties,
    }


SIGNED_32 = st.integers(-(2**31), 2**31 - 1)
SIGNED_64 = st.integers(-(2**63), 2**63 - 1)
HOST = st.sampled_from([8, 20]).flatmap(lambda n: st.binary(min_size=n, max_size=n))
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "b", "TAGZ", "é", ""])
VALUES = st.sampled_from(["", "x", "1\x01", "ключ 鍵 🔑", "long value with blanks"])
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=8)
TEXTS = st.builds(
    lambda pairs, tail: ("".join(f"{n}\x01{v}\x02" for n, v in pairs) + tail).encode(),
    PAIRS,
    st.sampled_from(["", "last\x01one", "\x02\x02", "loose", "\x01"]),
)
PROPERTIES = st.one_of(TEXTS, st.binary(max_size=60))
TOPICS = st.one_of(
    st.sampled_from([b"orders", b"payments", b"t" * 200, b"\xff\xfe", b"\xed\xa0\x80"]),
    st.binary(min_size=1, max_size=130),
)
RECORDS = st.lists(
    st.builds(
        ModelRecord,
        topic=TOPICS,
        queue_id=SIGNED_32,
        queue_offset=SIGNED_64,
        flag=SIGNED_32,
        sys_flag=SIGNED_32.map(lambda f: f & ~0x8D),
        born_ms=SIGNED_64,
        born_host=HOST,
        store_ms=SIGNED_64,
        store_host=HOST,
        reconsume_times=SIGNED_32,
        prepared_offset=SIGNED_64,
        body=st.binary(max_size=60),
        properties=PROPERTIES,
    ),
    max_size=20,
)


def placed(records, base=0):
    """The records with their physical offsets, and their bytes."""
    result, data = [], b""
    for record in records:
        result.append(replace(record, physical_offset=base + len(data)))
        data += result[-1].encode()
    return result, data


@given(
    records=RECORDS,
    base=st.sampled_from([0, 1 << 40]),
    names=st.permutations(list(COLUMNS)).flatmap(
        lambda p: st.integers(0, len(p)).map(lambda n: p[:n])
    ),
)
@settings(max_examples=settings.default.max_examples * 2)
def test_any_records_are_columns_as_in_the_model(records, base, names):
    records, data = placed(records, base)
    reader = ColumnReader(names)
    measured, rows = read_columns(reader, names, data, base_offset=base, check_crc=True)
    assert measured.status is RecordStatus.OK
    assert measured.position == len(data)
    assert measured.rows == measured.records == len(records)
    if names:
        assert rows == [{n: model_row(r)[n] for n in names} for r in records]


def test_separators_at_any_place_are_found():
    # next to each other, and with bytes between that differ by one bit or by one
    filler = b"\x00\x03\x80\x81\x82ab"
    texts = [
        b"n" * name + b"\x01" + (filler * 4)[:value] + b"\x02" + tail
        for name in range(19)
        for value in range(19)
        for tail in (b"", b"\x02\x01", b"TAGS\x01t\x02", b"\x80" * 9)
    ]
    names = ["properties", "tags", "propertiesText"]
    records, data = placed([ModelRecord(b"T", properties=text) for text in texts])
    _, rows = read_columns(ColumnReader(names), names, data)
    assert rows == [{n: model_row(r)[n] for n in names} for r in records]


def test_more_rows_than_a_block_and_than_the_first_table():
    names = list(COLUMNS)
    plain = ModelRecord(b"t", body=b"b", properties=b"KEYS\x01k\x02a\x01b\x02")
    records, data = placed(
        replace(plain, queue_offset=i, topic=b"t%d" % (i % 700)) for i in range(4_200)
    )
    measured, rows = read_columns(ColumnReader(names), names, data)
    assert measured.rows == 4_200
    assert rows == [model_row(r) for r in records]


def test_batches_are_closed_by_rows_and_by_bytes():
    names = ["queueOffset"]
    records, data = placed(
        ModelRecord(b"t", queue_offset=i, body=bytes(100)) for i in range(10)
    )
    size = len(records[0].encode())
    reader = ColumnReader(names)
    measured, rows = read_columns(reader, names, data, max_rows=4)
    assert (measured.position, len(rows)) == (4 * size, 4)
    measured, rows = read_columns(
        reader, names, data, measured.position, max_bytes=2 * size + 1
    )
    assert [row["queueOffset"] for row in rows] == [4, 5, 6]
    assert measured.position == 7 * size


def test_topics_are_chosen_by_one_question_each():
    asked = []

    def wants(topic):
        asked.append(topic)
        return topic.startswith("a")

    names = ["topic", "body"]
    _, data = placed(ModelRecord(b"abc"[i % 3 : i % 3 + 1]) for i in range(300))
    reader = ColumnReader(names, wants_topic=wants)
    measured, rows = read_columns(reader, names, data)
    assert measured.records == 300
    assert [row["topic"] for row in rows] == ["a"] * 100
    assert sorted(asked) == ["a", "b", "c"]


def test_prepared_and_rolled_back_records_are_left_out_on_demand():
    names = ["sysFlag"]
    _, data = placed(ModelRecord(b"t", sys_flag=f) for f in (0, 0x4, 0x8, 0xC))
    _, rows = read_columns(ColumnReader(names), names, data)
    assert [row["sysFlag"] for row in rows] == [0, 8]
    _, rows = read_columns(ColumnReader(names, skip_unqueued=False), names, data)
    assert [row["sysFlag"] for row in rows] == [0, 4, 8, 12]


def test_compressed_bodies_are_opened():
    names = ["body", "bodyCrc", "sysFlag"]
    packed = zlib.compress(b"x" * 1000)
    _, data = placed(
        [
            ModelRecord(b"t", sys_flag=0x301, body=packed),
            ModelRecord(b"t", body=b"plain"),
        ]
    )
    _, rows = read_columns(ColumnReader(names, open_body=open_zlib), names, data)
    assert [row["body"] for row in rows] == [b"x" * 1000, b"plain"]
    assert rows[0]["bodyCrc"] == zlib.crc32(packed) & 0x7FFFFFFF
    assert rows[0]["sysFlag"] == 0x301
    _, rows = read_columns(ColumnReader(names), names, data)
    assert rows[0]["body"] == packed


@pytest.mark.parametrize("batch", [0, 0x80])
def test_a_body_that_cannot_be_decompressed_is_a_row_as_stored(batch):
    _, data = placed(
        [
            ModelRecord(b"t"),
            ModelRecord(
                b"t", queue_id=3, queue_offset=7, sys_flag=1 | batch, body=b"no"
            ),
            ModelRecord(b"t", body=b"last"),
        ]
    )
    names = ["body", "queueOffset"]
    reader = ColumnReader(names, open_body=open_zlib)
    measured, rows = read_columns(reader, names, data)
    assert measured.status is RecordStatus.OK
    assert [row["body"] for row in rows] == [b"", b"no", b"last"]
    (text,) = measured.unopened
    assert text.startswith("t queue 3 offset 7: ")
    assert "header" in text


def test_bodies_without_end_that_cannot_be_decompressed_have_few_lines():
    _, data = placed([ModelRecord(b"t", sys_flag=1, body=b"no")] * 100)
    reader = ColumnReader(["body"], open_body=open_zlib)
    measured = reader.measure(data, 0, len(data))
    assert (measured.rows, len(measured.unopened)) == (100, 16)
    assert reader.measure(data, 0, 0).unopened == []


def test_items_of_an_inner_batch_are_rows():
    names = list(COLUMNS)
    items = [
        BatchItem(7, b"one", "TAGS\x01a\x02KEYS\x01k\x02"),
        BatchItem(8, b"", ""),
        BatchItem(9, b"three", "UNIQ_KEY\x01u\x02"),
    ]
    body = encode_batch(items)
    records, data = placed(
        [
            ModelRecord(
                b"t",
                queue_offset=50,
                sys_flag=flags,
                body=zlib.compress(body) if flags & 1 else body,
                properties=b"TAGS\x01outer\x02INNER_NUM\x013\x02",
            )
            for flags in (0xC0, 0xC1)
        ]
    )
    reader = ColumnReader(names, open_body=open_zlib)
    measured, rows = read_columns(reader, names, data)
    assert (measured.records, measured.rows) == (2, 6)
    expected = []
    for record in records:
        for i, item in enumerate(items):
            properties = model_properties(item.properties_text)
            expected.append(
                model_row(record)
                | {
                    "queueOffset": 50 + i,
                    "flag": item.flag,
                    "body": item.body,
                    "propertiesText": item.properties_text,
                    "properties": properties,
                    "tags": properties.get("TAGS"),
                    "keys": properties.get("KEYS"),
                    "msgId": properties.get(
                        "UNIQ_KEY", model_row(record)["offsetMsgId"]
                    ),
                }
            )
    assert rows == expected
    _, rows = read_columns(
        ColumnReader(names, unwrap=False), names, data[: len(records[0].encode())]
    )
    assert [row["body"] for row in rows] == [body]


@given(data=st.data())
def test_a_damaged_inner_batch_is_refused_or_read_whole(data):
    body = bytearray(encode_batch([BatchItem(1, b"one", "a\x01b\x02")] * 3))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(body)))
    names = ["body", "properties"]
    _, record = placed([ModelRecord(b"t", sys_flag=0x80, body=bytes(body[:cut]))])
    measured, rows = read_columns(ColumnReader(names), names, record)
    if measured.status is RecordStatus.OK:
        assert sum(len(row["body"]) for row in rows) <= cut
    else:
        assert measured.status is RecordStatus.BAD_LENGTHS
        assert (measured.position, measured.rows) == (0, 0)
        assert "inner batch" in measured.reason


def test_an_inner_batch_cannot_ask_for_any_amount_of_memory():
    body = encode_batch([BatchItem(0, b"", "")] * 40_000)
    topic = b"t" * 2_000
    _, data = placed([ModelRecord(b"x"), ModelRecord(topic, sys_flag=0x80, body=body)])
    reader = ColumnReader(["topic"])
    measured = reader.measure(data, 0, len(data))
    assert measured.status is RecordStatus.BAD_LENGTHS
    assert measured.rows == 1
    assert measured.reason == "its inner batch has too many items"


@given(records=RECORDS.filter(bool), data=st.data(), check_crc=st.booleans())
@settings(max_examples=settings.default.max_examples)
def test_damage_ends_a_batch_where_the_record_check_says(records, data, check_crc):
    records, stored = placed(records)
    damaged = bytearray(stored)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    names = ["physicalOffset"]
    reader = ColumnReader(names, unwrap=False, skip_unqueued=False)
    measured, rows = read_columns(
        reader, names, cut, base_offset=0, check_crc=check_crc
    )
    position = 0
    expected = []
    for _ in records:
        if cut[position:]:
            walked = walk_chain(
                cut,
                position,
                len(cut),
                base_offset=0,
                check_crc=check_crc,
                stop_at=position + 1,
            )
            if walked.status is not RecordStatus.OK or not walked.records:
                break
            expected.append(position)
            position = walked.position
    assert measured.position == position
    assert [row["physicalOffset"] for row in rows] == expected


def test_wrong_place_is_found_only_where_places_are_compared():
    _, data = placed([ModelRecord(b"t")], base=100)
    reader = ColumnReader(["topic"])
    measured = reader.measure(data, 0, len(data), base_offset=0)
    assert measured.status is RecordStatus.BAD_OFFSET
    assert reader.measure(data, 0, len(data)).rows == 1


def test_walk_stops_at_the_first_boundary_behind_a_place():
    records, data = placed(ModelRecord(b"t", body=bytes(i)) for i in range(20))
    starts = [r.physical_offset for r in records] + [len(data)]
    for stop_at in range(0, len(data), 13):
        walked = walk_chain(data, 0, len(data), base_offset=0, stop_at=stop_at)
        assert walked.status is RecordStatus.OK
        assert walked.position == min(s for s in starts if s >= stop_at)
        assert walked.records == starts.index(walked.position)


def test_a_walk_knows_the_least_and_the_greatest_store_time():
    times = [7, -3, 1 << 62, 0]
    _, data = placed(ModelRecord(b"t", store_ms=each) for each in times)
    walked = walk_chain(data, 0, len(data), base_offset=0)
    assert (walked.least_ms, walked.greatest_ms) == (-3, 1 << 62)
    nothing = walk_chain(b"", 0, 0, base_offset=0)
    assert nothing.least_ms > nothing.greatest_ms


@pytest.mark.parametrize("tail", [b"", struct.pack(">iI", 50, MAGIC_BLANK), bytes(99)])
def test_any_place_leads_to_the_next_record(tail):
    records, data = placed(
        ModelRecord(b"t", body=b"\xda\xa3\x20\xa7" * (i % 5)) for i in range(20)
    )
    starts = [r.physical_offset for r in records]
    stored = data + tail
    for position in range(len(data)):
        found = find_record(stored, position, len(stored), base_offset=0)
        later = [s for s in starts if s >= position]
        assert found == (later[0] if later else len(stored))


def test_a_record_in_a_body_fools_the_search_but_not_the_chain():
    outer = ModelRecord(b"t", body=bytes(300))
    inner = ModelRecord(b"t", physical_offset=88)
    second = replace(inner, physical_offset=88 + len(inner.encode()))
    third = replace(inner, physical_offset=88 + 2 * len(inner.encode()))
    crafted = inner.encode() + second.encode() + third.encode()
    crafted = crafted.ljust(300, b"\0")
    data = replace(outer, body=crafted).encode()
    assert find_record(data, 1, len(data), base_offset=0) == 88
    walked = walk_chain(data, 0, len(data), base_offset=0)
    assert walked[:3] == (RecordStatus.OK, len(data), 1)


def test_wrong_calls_are_refused():
    with pytest.raises(ValueError, match="no such column: nope"):
        ColumnReader(["topic", "nope"])
    reader = ColumnReader(["topic"])
    for position, end in ((-1, 5), (3, 2), (0, 11)):
        with pytest.raises(IndexError):
            reader.measure(bytes(10), position, end)
        with pytest.raises(IndexError):
            walk_chain(bytes(10), position, end, base_offset=0)
        with pytest.raises(IndexError):
            find_record(bytes(10), position, end, base_offset=0)
    with pytest.raises(ValueError, match="0 of 1 columns"):
        reader.fill([])
    with pytest.raises(ValueError, match="1 buffers"):
        reader.fill([(0,)])


def test_nothing_is_no_rows():
    names = list(COLUMNS)
    measured, rows = read_columns(ColumnReader(names), names, b"")
    assert (measured.status, measured.position, rows) == (RecordStatus.OK, 0, [])


def golden_log(golden, name):
    """The files of a recorded commit log: (base offset, bytes)."""
    for path in sorted((golden / "stores" / name / "commitlog").iterdir()):
        yield int(path.name), path.read_bytes()


@pytest.mark.parametrize("name", ["store-plain", "store-features", "store-crash"])
def test_golden_records_are_rows_as_java_served_them(golden, name):
    names = list(COLUMNS)
    rows = {}
    for base, data in golden_log(golden, name):
        reader = ColumnReader(
            names, open_body=open_zlib, unwrap=False, skip_unqueued=False
        )
        measured, found = read_columns(
            reader, names, data, base_offset=base, check_crc=True, max_rows=1 << 20
        )
        assert measured.status in (RecordStatus.BLANK, RecordStatus.END)
        for row in found:
            record = decode_record(data, row["physicalOffset"] - base)
            assert row["bornHost"] == model_host(record.born_host)
            assert row["propertiesText"].encode() == record.properties
            rows[row["physicalOffset"]] = row
    served = read_rows(golden / "stores" / f"{name}.expected.jsonl")
    messages = [row for row in served if row["kind"] == "message"]
    compared = 0
    for message in messages:
        if message["topic"] == "FCompact":  # served from the compaction log
            continue
        row = rows[message["commitLogOffset"]]
        assert row["topic"] == message["topic"]
        assert row["queueId"] == message["queueId"]
        assert row["bodyCrc"] == message["bodyCRC"]
        assert row["storeSize"] == message["storeSize"]
        assert row["storeTimestamp"] == message["storeTimestamp"] * 1000
        assert row["properties"].items() <= message["properties"].items()
        assert len(row["body"]) == message.get("plainLength", message["bodyLength"])
        compared += 1
    assert compared
