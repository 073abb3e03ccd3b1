from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath import (
    MappedFile,
    RecordEncoder,
    RecordStatus,
    ScanStop,
    keep_unqueued,
    read_entry,
    scan_queue,
    size_entries,
    valid_entries_end,
    walk_log,
)
from tests.model import hashing
from tests.model import queue_scan as model
from tests.model.queue_scan import FILLER_SIZE, Entry
from tests.model.record import ModelRecord

FILE_SIZE = 2_000
NO_LIMIT = {
    "max_messages": 1_000,
    "max_bytes": 1 << 40,
    "max_examined": 1_000,
    "confirm_offset": 1 << 60,
    "min_physical_offset": 0,
    "tag_codes": None,
}


@pytest.fixture
def make_file(tmp_path):
    files = []

    def make(data: bytes, size: int = FILE_SIZE, base_offset: int = 0) -> MappedFile:
        path = str(tmp_path / str(len(files)))
        file = MappedFile(path, size, base_offset=base_offset, create=True)
        files.append(file)
        file.allocate(size)
        file.append(data)
        return file

    return make


@pytest.fixture(scope="module")
def queue_file(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("queue") / "0")
    file = MappedFile(path, FILE_SIZE, create=True)
    file.allocate(FILE_SIZE)
    return file


def encode(entries) -> bytes:
    return b"".join(entry.encode() for entry in entries)


def scan(file, entries, **limits):
    return scan_queue(file, 0, 20 * len(entries), **{**NO_LIMIT, **limits})


@st.composite
def queues(draw):
    entries, offset = [], 100
    for _ in range(draw(st.integers(0, 16))):
        size = draw(st.sampled_from([91, 100, 300]))
        kind = draw(st.integers(0, 19))
        if kind == 0:
            entries.append(Entry(0, FILLER_SIZE, 0))
            continue
        if kind == 1:
            entries.append(Entry(0, 0, 0))
            continue
        offset += draw(st.sampled_from([0, 0, 0, 500]))
        entries.append(Entry(offset, size, draw(st.integers(-1, 3))))
        offset += size
    return entries


@given(
    entries=queues(),
    tag_codes=st.none() | st.lists(st.integers(-1, 3), max_size=3).map(tuple),
    max_messages=st.integers(0, 20),
    max_bytes=st.integers(0, 4_000),
    max_examined=st.integers(0, 18),
    confirm_offset=st.integers(0, 6_000),
    min_physical_offset=st.integers(0, 2_000),
)
@settings(max_examples=60)
def test_any_queue_as_model(queue_file, entries, **limits):
    queue_file.write(0, encode(entries).ljust(FILE_SIZE, b"\0"))
    expected = model.scan(entries, **limits)
    found = scan_queue(queue_file, 0, 20 * len(entries), **limits)
    assert found.runs == expected.runs
    assert found.message_count == len(expected.taken)
    assert found.byte_count == sum(entry.size for entry in expected.taken)
    assert (found.examined, found.removed) == (expected.examined, expected.removed)
    assert found.stop.name == expected.stop


@given(entries=queues())
def test_sizes_of_any_queue(queue_file, entries):
    queue_file.write(0, encode(entries).ljust(FILE_SIZE, b"\0"))
    counts = array("q", [1, 1, 1])
    bounds = array("q", [91, 100])
    total = size_entries(queue_file, 0, 20 * len(entries), bounds, counts)
    sizes = [each.size for each in entries if each.size not in (0, FILLER_SIZE)]
    assert total == sum(sizes)
    larger = sum(size > 100 for size in sizes)
    assert list(counts) == [1 + sizes.count(91), 1 + sizes.count(100), 1 + larger]


def test_sizes_need_a_count_for_what_is_larger(queue_file):
    one = array("q", [1])
    with pytest.raises(ValueError, match="1 counts for 1 bounds"):
        size_entries(queue_file, 0, 20, one, one)
    with pytest.raises(IndexError, match="outside"):
        size_entries(queue_file, 0, FILE_SIZE + 20, array("q"), one)


def test_neighbours_become_one_run(make_file):
    entries = [Entry(0, 91, 1), Entry(91, 100, 2), Entry(191, 92, 1), Entry(500, 91, 1)]
    file = make_file(encode(entries))
    assert scan(file, entries).runs == [(0, 283), (500, 91)]
    assert scan(file, entries, tag_codes=(1,)).runs == [(0, 91), (191, 92), (500, 91)]
    assert scan(file, entries, tag_codes=()).message_count == 0


def test_first_message_is_taken_whatever_its_size(make_file):
    entries = [Entry(0, 5_000, 0), Entry(5_000, 91, 0)]
    found = scan(make_file(encode(entries)), entries, max_bytes=10)
    assert found.runs == [(0, 5_000)]
    assert found.stop is ScanStop.SCAN_FULL


def test_scan_stops_before_what_is_not_confirmed(make_file):
    entries = [Entry(0, 100, 0), Entry(100, 100, 0)]
    file = make_file(encode(entries))
    assert scan(file, entries, confirm_offset=200).message_count == 2
    found = scan(file, entries, confirm_offset=199)
    assert (found.message_count, found.examined) == (1, 1)
    assert found.stop is ScanStop.SCAN_END
    assert scan(file, entries, confirm_offset=99).message_count == 0


@pytest.mark.parametrize("offset", [2**63 - 1, 2**63 - 50])
def test_offset_at_the_end_of_the_number_range_is_not_confirmed(make_file, offset):
    entries = [Entry(offset, 100, 0)]
    found = scan(make_file(encode(entries)), entries)
    assert (found.message_count, found.examined) == (0, 0)


def test_negative_offset_counts_as_removed(make_file):
    entries = [Entry(-5, 100, 0), Entry(0, 91, 0)]
    found = scan(make_file(encode(entries)), entries)
    assert (found.message_count, found.removed) == (1, 1)


def test_more_tags_than_the_scan_can_compare_take_everything(make_file):
    entries = [Entry(0, 91, 7)]
    file = make_file(encode(entries))
    assert scan(file, entries, tag_codes=tuple(range(100, 164))).message_count == 0
    assert scan(file, entries, tag_codes=tuple(range(100, 165))).message_count == 1


def test_runs_of_one_scan_are_limited(make_file):
    entries = [Entry(i * 200, 91, 0) for i in range(1_100)]
    file = make_file(encode(entries), 22_000)
    found = scan(file, entries, max_messages=2_000, max_examined=2_000)
    assert found.message_count == len(found.runs) == 1_024
    assert found.stop is ScanStop.SCAN_FULL


@pytest.mark.parametrize(("start", "end"), [(-20, 0), (0, FILE_SIZE + 1), (40, 20)])
def test_positions_outside_the_file_are_refused(make_file, start, end):
    file = make_file(b"")
    for call in (
        lambda: scan_queue(file, start, end, **NO_LIMIT),
        lambda: walk_log(file, start, end),
    ):
        with pytest.raises(IndexError):
            call()


def test_closed_file_is_refused(make_file):
    file = make_file(b"")
    file.close()
    for call in (
        lambda: scan_queue(file, 0, 20, **NO_LIMIT),
        lambda: walk_log(file, 0, 20),
        lambda: read_entry(file, 0),
        lambda: valid_entries_end(file),
    ):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_valid_entries_end_at_the_first_that_was_not_written(make_file):
    entries = [Entry(0, FILLER_SIZE, 0), Entry(0, 91, 0), Entry(91, 100, -1)]
    file = make_file(encode(entries))
    assert valid_entries_end(file) == valid_entries_end(file, 40) == 60
    assert valid_entries_end(file, 60) == 60
    file.append(Entry(-1, 91, 0).encode())
    assert valid_entries_end(file) == 60
    file.write(60, Entry(5, 1 << 31, 0).encode())
    assert valid_entries_end(file) == 60
    full = make_file(encode([Entry(1, 91, 0)] * 3), 65)
    assert valid_entries_end(full) == 60


def log_of(records, base_offset):
    data, offset, placed = b"", base_offset, []
    for fields in records:
        record = ModelRecord(physical_offset=offset, **fields)
        data += record.encode()
        placed.append(record)
        offset = base_offset + len(data)
    return data, placed


RECORDS = [
    {"topic": b"a", "body": b"1", "queue_id": 3, "queue_offset": 9, "store_ms": 77},
    {"topic": b"b" * 200, "body": b"2" * 500, "properties": b"TAGS\x01x\x02"},
    {"topic": b"SCHEDULE_TOPIC_XXXX", "body": b"3", "properties": b"DELAY\x013\x02"},
    {"topic": b"a", "born_host": bytes(20), "store_host": bytes(20), "sys_flag": 8},
]


def test_walk_tells_what_recovery_needs(make_file):
    data, placed = log_of(RECORDS, 1 << 30)
    file = make_file(data, 4_096, 1 << 30)
    status, position, walked = walk_log(file, 0, len(data))
    assert (status, position) == (RecordStatus.OK, len(data))
    for found, record in zip(walked, placed, strict=True):
        assert found == (
            record.physical_offset,
            len(record.encode()),
            record.store_ms,
            record.queue_id,
            record.queue_offset,
            record.stored_sys_flag,
            hashing.tags_code(record.properties.decode()),
            record.topic,
            record.properties,
        )


def test_walk_continues_where_its_limit_stopped_it(make_file):
    data, placed = log_of(RECORDS, 0)
    file = make_file(data, 4_096)
    status, position, first = walk_log(file, 0, file.size, limit=3)
    assert (status, len(first)) == (RecordStatus.OK, 3)
    status, position, rest = walk_log(file, position, file.size, limit=3)
    assert (status, position) == (RecordStatus.END, len(data))
    assert [r.physical_offset for r in first + rest] == [
        r.physical_offset for r in placed
    ]


def test_walk_says_where_and_why_it_stopped(make_file):
    data, placed = log_of(RECORDS, 0)
    second = placed[1].physical_offset
    third = placed[2].physical_offset
    damages = {
        RecordStatus.BAD_CRC: (second + 100, b"\xff"),
        RecordStatus.BAD_MAGIC: (second + 4, b"\x01"),
        RecordStatus.BAD_SIZE: (second, b"\x00\x00\x00\x07"),
        RecordStatus.BAD_LENGTHS: (second + 3, bytes([data[second + 3] ^ 1])),
        RecordStatus.BAD_OFFSET: (second + 35, b"\xee"),
        RecordStatus.SHORT: (second, b"\x00\x01\x00\x00"),
        RecordStatus.BLANK: (second + 4, b"\xcb\xd4\x31\x94"),
        RecordStatus.END: (second, bytes(8)),
    }
    for expected, (at, damage) in damages.items():
        file = make_file(data, 4_096)
        file.write(at, damage)
        status, position, walked = walk_log(file, 0, file.size)
        assert (status, position, len(walked)) == (expected, second, 1)
        if expected is RecordStatus.BAD_CRC:
            status, position, walked = walk_log(file, 0, third, check_crc=False)
            assert (status, position, len(walked)) == (RecordStatus.OK, third, 2)


@given(noise=st.binary(max_size=300), at=st.integers(0, 900))
def test_walk_never_reads_on_in_noise(tmp_path_factory, noise, at):
    path = str(tmp_path_factory.mktemp("log") / "0")
    data, _ = log_of(RECORDS, 0)
    file = MappedFile(path, 2_048, create=True)
    file.allocate(2_048)
    file.append(data)
    file.write(at, noise)
    _, position, walked = walk_log(file, 0, file.size)
    assert position == sum(record.size for record in walked)
    assert data.startswith(file.read(0, min(position, at)))


def test_encoder_and_walk_agree(make_file):
    encoder = RecordEncoder(bytes(8))
    file = make_file(b"", 4_096, 4_096)
    for i in range(10):
        end = file.base_offset + encoder.staged_size
        encoder.stage(
            b"t", 0, i, end, 0, 0, 0, bytes(8), 1, 0, 0, b"body", b"TAGS\x01a\x02"
        )
    encoder.stage_blank(4_096 - encoder.staged_size)
    encoder.commit(file, use_pwrite=False)
    status, position, walked = walk_log(file, 0, file.size)
    assert status is RecordStatus.BLANK
    assert position == file.write_position - 8
    assert [(r.queue_offset, r.tags_code) for r in walked] == [
        (i, 97) for i in range(10)
    ]


def ends_of(queues):
    rows = [(-1 << 63, -1, -1), *sorted((*key, end) for key, end in queues.items())]
    flat = array("q", [number for row in rows for number in row])
    return memoryview(flat).cast("B").cast("q", (len(rows), 3))


@given(
    st.dictionaries(
        st.tuples(st.sampled_from([-9, 0, 7]), st.integers(0, 3)),
        st.integers(-1, 100),
    ),
    st.lists(
        st.tuples(
            st.integers(0, 90),
            st.integers(1, 20),
            st.sampled_from([-9, 0, 7, 8]),
            st.integers(0, 4),
        )
    ),
)
def test_kept_rows_are_those_behind_the_end_of_their_queue(queues, records):
    flat = array("q", [0] * 8 * (len(records) + 1))
    rows = memoryview(flat).cast("B").cast("q", (len(records) + 1, 8))
    for n, (offset, size, topic, queue_id) in enumerate(records):
        for column, value in ((0, offset), (1, size), (3, queue_id), (7, topic)):
            rows[n, column] = value
    wanted = [
        record
        for record in records
        if record[0] + record[1] > queues.get((record[2], record[3]), -1)
    ]
    count = keep_unqueued(rows, len(records), ends_of(queues))
    assert [
        (rows[n, 0], rows[n, 1], rows[n, 7], rows[n, 3]) for n in range(count)
    ] == wanted


@pytest.mark.parametrize(
    ("rows", "count", "ends", "said"),
    [
        ((1, 7), 1, (1, 3), "7 columns"),
        ((1, 8), 1, (1, 2), "ends of 2"),
        ((1, 8), 2, (1, 3), "2 of 1 rows"),
        ((1, 8), -1, (1, 3), "-1 of 1 rows"),
    ],
)
def test_rows_of_another_shape_are_refused(rows, count, ends, said):
    tables = [
        memoryview(bytearray(8 * shape[0] * shape[1])).cast("q", shape)
        for shape in (rows, ends)
    ]
    with pytest.raises(ValueError, match=said):
        keep_unqueued(tables[0], count, tables[1])
