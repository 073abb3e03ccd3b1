"""LogReader: single fields of records, and the search for a time."""

from bisect import bisect_left, bisect_right

import pytest

from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail


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
