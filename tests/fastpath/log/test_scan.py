import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import ScanStop, read_entry, scan_queue, walk_log
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


def scan(entries, **limits):
    return scan_queue(encode(entries), **{**NO_LIMIT, **limits})


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
def test_any_queue_as_model(entries, **limits):
    expected = model.scan(entries, **limits)
    found = scan_queue(encode(entries), **limits)
    assert found.runs == expected.runs
    assert found.message_count == len(expected.taken)
    assert found.byte_count == sum(entry.size for entry in expected.taken)
    assert (found.examined, found.removed) == (expected.examined, expected.removed)
    assert found.stop.name == expected.stop


def test_neighbours_become_one_run():
    entries = [Entry(0, 91, 1), Entry(91, 100, 2), Entry(191, 92, 1), Entry(500, 91, 1)]
    assert scan(entries).runs == [(0, 283), (500, 91)]
    assert scan(entries, tag_codes=(1,)).runs == [(0, 91), (191, 92), (500, 91)]
    assert scan(entries, tag_codes=()).message_count == 0


def test_first_message_is_taken_whatever_its_size():
    entries = [Entry(0, 5_000, 0), Entry(5_000, 91, 0)]
    found = scan(entries, max_bytes=10)
    assert found.runs == [(0, 5_000)]
    assert found.stop is ScanStop.SCAN_FULL


def test_scan_stops_before_what_is_not_confirmed():
    entries = [Entry(0, 100, 0), Entry(100, 100, 0)]
    assert scan(entries, confirm_offset=200).message_count == 2
    found = scan(entries, confirm_offset=199)
    assert (found.message_count, found.examined) == (1, 1)
    assert found.stop is ScanStop.SCAN_END
    assert scan(entries, confirm_offset=99).message_count == 0


@pytest.mark.parametrize("offset", [2**63 - 1, 2**63 - 50])
def test_offset_at_the_end_of_the_number_range_is_not_confirmed(offset):
    entries = [Entry(offset, 100, 0)]
    found = scan(entries)
    assert (found.message_count, found.examined) == (0, 0)


def test_negative_offset_counts_as_removed():
    entries = [Entry(-5, 100, 0), Entry(0, 91, 0)]
    found = scan(entries)
    assert (found.message_count, found.removed) == (1, 1)


def test_more_tags_than_the_scan_can_compare_take_everything():
    entries = [Entry(0, 91, 7)]
    assert scan(entries, tag_codes=tuple(range(100, 164))).message_count == 0
    assert scan(entries, tag_codes=tuple(range(100, 165))).message_count == 1


def test_runs_of_one_scan_are_limited():
    entries = [Entry(i * 200, 91, 0) for i in range(1_100)]
    found = scan(entries, max_messages=2_000, max_examined=2_000)
    assert found.message_count == len(found.runs) == 1_024
    assert found.stop is ScanStop.SCAN_FULL


@pytest.mark.parametrize(("start", "end"), [(-20, 0), (0, FILE_SIZE + 1), (40, 20)])
def test_positions_outside_the_file_are_refused(make_file, start, end):
    file = make_file(b"")
    with pytest.raises(IndexError):
        walk_log(file, start, end)


def test_closed_file_is_refused(make_file):
    file = make_file(b"")
    file.close()
    for call in (lambda: walk_log(file, 0, 20), lambda: read_entry(file, 0)):
        with pytest.raises(ValueError, match="closed"):
            call()


@given(entries=queues())
def test_entries_of_a_file_are_read_one_by_one(queue_file, entries):
    queue_file.write(0, encode(entries).ljust(FILE_SIZE, b"\0"))
    found = [read_entry(queue_file, 20 * n) for n in range(len(entries))]
    assert found == [(e.offset, e.size, e.tags_code) for e in entries]
    for position in (-1, FILE_SIZE - 19):
        with pytest.raises(IndexError):
            read_entry(queue_file, position)


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
