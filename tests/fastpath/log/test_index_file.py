"""Index entries against a plain decoder of the format."""

import struct

import pytest

from rmq._fastpath.bytes.hashing import java_hash
from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.index_file import IndexFile, find_in_log, index_file_size
from rmq._fastpath.log.mapped_file import MappedFile

SLOTS, ENTRIES = 7, 12
TIMES = {"begin_ms": 0, "end_ms": 10**15}


@pytest.fixture
def log(tmp_path):
    file = MappedFile(str(tmp_path / "log"), 1 << 16, create=True)
    file.allocate(file.size)
    return file


@pytest.fixture
def table(tmp_path):
    size = index_file_size(SLOTS, ENTRIES)
    file = MappedFile(str(tmp_path / "index"), size, create=True)
    file.allocate(size)
    return IndexFile(file, SLOTS, ENTRIES)


def write(log, *all_properties, store_ms=1_000, sys_flag=0):
    encoder = RecordEncoder(bytes(8))
    for number, properties in enumerate(all_properties):
        at = log.write_position + encoder.staged_size
        encoder.stage(
            b"t\xc3\xa4", 0, 0, at, 0, sys_flag, 1, bytes(8),
            store_ms + 2_500 * number, 0, 0, b"x", properties,
        )  # fmt: skip
    encoder.commit(log, use_pwrite=False)


def entries(table):
    data = table.file.read(0, table.file.size)
    at = 40 + 4 * SLOTS
    return [
        struct.unpack_from(">iqii", data, at + 20 * n)
        for n in range(1, table.entry_count)
    ]


def add(table, log, done=0, position=0):
    end = log.write_position
    return table.add_records(log, position, end, end, done)


def test_entries_of_a_record_in_order(table, log):
    write(log, b"KEYS\x01a  b \x02TAGS\x01r\x02UNIQ_KEY\x01u\x02", b"KEYS\x01a")
    assert add(table, log) == (RecordStatus.OK, log.write_position, 0)
    texts = ["tä#u", "tä#a", "tä#b", "tä#T#r", "tä#a"]
    found = entries(table)
    assert [entry[0] for entry in found] == [abs(java_hash(t)) for t in texts]
    assert [entry[2] for entry in found] == [0, 0, 0, 0, 2]
    assert found[4][3] == max(
        n + 1 for n in range(4) if found[n][0] % SLOTS == found[4][0] % SLOTS
    )
    assert (table.begin_ms, table.end_ms) == (1_000, 3_500)
    assert table.begin_offset == 0 < table.end_offset
    assert table.used_slots == len({entry[0] % SLOTS for entry in found})


@pytest.mark.parametrize(
    "properties",
    [b"", b"KEYS\x01\x02", b"KEYSX\x01a\x02", b"KEYS", b"KEYS\x01  \x02", b"A\x01B"],
)
def test_records_without_keys(table, log, properties):
    write(log, properties)
    assert add(table, log)[1] == log.write_position
    assert table.entry_count == 1


def test_the_last_of_equal_names_counts(table, log):
    write(log, b"KEYS\x01a\x02KEYS\x01b\x02KEYS\x01\x02")
    add(table, log)
    assert [entry[0] for entry in entries(table)] == [abs(java_hash("tä#b"))]


def test_a_record_goes_on_in_the_next_file(table, log):
    write(log, b"KEYS\x01" + b" ".join(b"k%d" % i for i in range(20)))
    status, position, done = add(table, log)
    assert (status, position, done) == (RecordStatus.OK, 0, ENTRIES - 1)
    assert table.is_full


def test_giving_way_changes_nothing(table, log):
    write(log, *[b""] * 300, b"KEYS\x01a")
    end = log.write_position
    assert table.add_records(log, 0, end, end, 0, True) == (RecordStatus.OK, end, 0)
    assert [entry[0] for entry in entries(table)] == [abs(java_hash("tä#a"))]


def test_header_comes_back(table, log):
    write(log, b"KEYS\x01a", b"KEYS\x01b")
    add(table, log)
    table.save()
    again = IndexFile(table.file, SLOTS, ENTRIES)
    again.load()
    for name in ("begin_ms", "end_ms", "begin_offset", "end_offset", "entry_count"):
        assert getattr(again, name) == getattr(table, name)
    assert again.used_slots == table.used_slots


def test_nonsense_header_is_refused(table):
    table.file.write(36, (99).to_bytes(4, "big"))
    with pytest.raises(ValueError, match="header"):
        table.load()


def test_file_of_another_length_is_refused(table):
    with pytest.raises(ValueError, match="bytes instead of"):
        IndexFile(table.file, SLOTS + 1, ENTRIES)


def test_find_names_the_newest_first(table, log):
    write(log, b"KEYS\x01a", b"KEYS\x01b", b"KEYS\x01a")
    add(table, log)
    found = table.find("tä".encode(), b"a", is_tags=False, **TIMES)
    assert len(found) == 2
    assert found == sorted(found, reverse=True)
    assert found[-1] == 0


@pytest.mark.parametrize("links", [range(1, 12), [5] * 11, [-1] * 11])
def test_damaged_chains_end(table, log, links):
    write(log, *[b"KEYS\x01a"] * 11)
    add(table, log)
    at = 40 + 4 * SLOTS
    for number, link in zip(range(1, 12), links, strict=True):
        table.file.write(at + 20 * number + 16, link.to_bytes(4, "big", signed=True))
    found = table.find("tä".encode(), b"a", is_tags=False, **TIMES)
    assert 1 <= len(found) <= 11


def test_scan_keeps_the_last(log):
    write(log, *[b"TAGS\x01a"] * 5)
    size = log.write_position // 5
    where = log, 0, log.write_position, "tä".encode(), b"a"
    found = find_in_log(*where, is_tags=True, limit=2, **TIMES)
    assert found == [3 * size, 4 * size]
    assert not find_in_log(*where, is_tags=False, limit=2, **TIMES)
    first = find_in_log(*where, is_tags=True, limit=2, only_first=True, **TIMES)
    assert first == [0]
