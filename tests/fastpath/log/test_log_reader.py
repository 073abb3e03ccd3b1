"""LogReader: single fields of records, the search for a time, and changed bytes."""

import os
from bisect import bisect_left, bisect_right

import pytest

from rmq._fastpath.log.block_digests import BLOCK_BYTES, BlockDigests
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail
from rmq.core.errors import RecordDamaged


@pytest.mark.parametrize("host", [bytes(8), bytes(20)], ids=["IPv4", "IPv6"])
def test_the_store_time_of_a_record(tmp_path, host):
    """Its position depends on the size of the producer's host."""
    log = LogTail(RecordEncoder(bytes(8)))
    log.file = MappedFile(str(tmp_path / "log"), 1 << 16, create=True)
    log.file.allocate(1 << 16)
    queue, reader = QueueTail("T", 0), LogReader([log.file])
    places = [
        log.append(queue, True, 0, 0, 1, host, 7_000 + n, 0, 0, b"x", "", None)
        for n in range(3)
    ]
    times = [reader.store_ms_at(offset) for _, offset, _ in places]
    assert times == [7_000, 7_001, 7_002]
    assert reader.store_ms_at(log.end_offset) == 0
    assert reader.store_ms_at(1 << 20) == 0


def test_the_search_for_a_time(tmp_path):
    """Entries in memory, and the same entries in a file."""
    log = LogTail(RecordEncoder(bytes(8)))
    log.file = MappedFile(str(tmp_path / "log"), 1 << 16, create=True)
    log.file.allocate(1 << 16)
    queue, reader = QueueTail("T", 0), LogReader([log.file])
    times = [10, 20, 20, 20, 35, 50, 50]
    for ms in times:
        log.append(queue, True, 0, 0, 1, bytes(8), ms, 0, 0, b"x", "", None)
    entries = queue.entries_in_memory(0, len(times))
    file = MappedFile(
        str(tmp_path / "queue"), len(entries), create=True, base_offset=len(entries)
    )
    file.allocate(len(entries))
    file.append(entries)
    for first in range(len(times)):
        for end in range(first, len(times) + 1):
            for ms in range(5, 60, 5):
                where = first, end, ms
                left = bisect_left(times, ms, first, end)
                right = bisect_right(times, ms, first, end)
                assert reader.search_time(queue, None, *where, upper=False) == left
                assert reader.search_time(queue, None, *where, upper=True) == right
                later = first + len(times), end + len(times), ms
                found = reader.search_time(queue, file, *later, upper=False)
                assert found == left + len(times)
    with pytest.raises(IndexError):
        reader.search_time(queue, None, 0, len(times) + 1, 5, upper=False)
    with pytest.raises(IndexError):
        reader.search_time(queue, file, 0, 1, 5, upper=False)


@pytest.fixture
def sealed(tmp_path):
    """A file of three blocks with digests, and its reader."""
    size = 3 * BLOCK_BYTES
    file = MappedFile(str(tmp_path / "log"), size, base_offset=7 * size, create=True)
    file.allocate(size)
    file.append(bytes(range(256)) * (size // 256))
    file.flush()
    file.digests = BlockDigests(size)
    for number in range(3):
        file.digests.seal_next(file.view(number * BLOCK_BYTES, BLOCK_BYTES))
    reader = LogReader([file])
    yield file, reader
    file.close()


def flip(file, position):
    with open(file.path, "r+b") as opened:
        os.pwrite(opened.fileno(), b"!", position)
    file.digests.forget_checks()


def test_changed_bytes_are_never_read_in_silence(sealed):
    file, reader = sealed
    found = []
    reader.on_bad_block = found.append
    begin = file.base_offset
    assert reader.read(begin, file.size) == file.read(0, file.size)
    flip(file, BLOCK_BYTES + 5)
    bad = begin + BLOCK_BYTES
    for offset, size in [(begin, file.size), (bad - 1, 2), (bad + 9, 1)]:
        with pytest.raises(RecordDamaged, match=f"the record at {offset} of") as caught:
            reader.read(offset, size)
        assert caught.value.block == bad
        assert reader.find_bad(offset, size) == bad
    assert set(found) == {bad}
    assert reader.read(begin, BLOCK_BYTES) == file.read(0, BLOCK_BYTES)
    assert reader.read_damaged(bad, 8) == file.read(BLOCK_BYTES, 8)
    assert reader.read_damaged(begin + file.size - 1, 2) is None
    assert reader.read_damaged(begin - 1, 2) is None


def test_a_record_is_not_read_by_a_changed_size(sealed):
    file, reader = sealed
    flip(file, BLOCK_BYTES)
    with pytest.raises(RecordDamaged):
        reader.read_record(file.base_offset + BLOCK_BYTES)


def test_bytes_that_the_disk_cannot_read_are_damaged(sealed):
    """The file became shorter: touching the mapping would end the process."""
    file, reader = sealed
    os.truncate(file.path, BLOCK_BYTES)
    file.digests.forget_checks()
    begin = file.base_offset
    assert reader.read(begin, BLOCK_BYTES) == file.read(0, BLOCK_BYTES)
    with pytest.raises(RecordDamaged):
        reader.read(begin + BLOCK_BYTES + 5, 9)
    with pytest.raises(OSError, match="log"):
        reader.read_damaged(begin + BLOCK_BYTES + 5, 9)
    assert reader.find_missing(begin + BLOCK_BYTES, 9) is None
