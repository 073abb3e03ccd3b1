"""LogReader: single fields of records."""

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
