"""An append of one record with its entry: what a put costs below Python."""

import pytest

from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail

PROPERTIES = "UNIQ_KEY\x01FD000000000000000000000000000002\x02TAGS\x01TagA\x02"


def mapped(path, size):
    file = MappedFile(str(path), size, create=True)
    file.allocate(size)
    return file


@pytest.mark.parametrize("size", [128, 1024])
def bench_append(benchmark, tmp_path, size):
    log, queue, body = LogTail(RecordEncoder(bytes(8))), QueueTail("t", 0), bytes(size)
    log.file = mapped(tmp_path / "log", 1 << 20)

    def run():
        log.file.write_position = 0
        queue.truncate_to(0, -1)
        log.append(queue, True, 0, 0, 1, bytes(8), 2, 0, 0, body, PROPERTIES, None)

    benchmark(run)


def bench_copies(benchmark, tmp_path):
    """Thirty-two delayed messages that are due."""
    log, queue = LogTail(RecordEncoder(bytes(8))), QueueTail("t", 0)
    log.file = mapped(tmp_path / "log", 1 << 20)
    encoder = RecordEncoder(bytes(8))
    text = f"{PROPERTIES}DELAY\x011\x02REAL_TOPIC\x01t\x02REAL_QID\x010\x02".encode()
    for n in range(32):
        parts = (0, 0, 1, bytes(8), 2, 0, 0, bytes(128), text)
        encoder.stage(b"SCHEDULE_TOPIC_XXXX", 0, n, 0, *parts)
    records = encoder.staged_bytes()

    def run():
        log.file.write_position = 0
        queue.truncate_to(0, -1)
        return log.append_copies({b"t\x010": queue}, records, 0, 5, 9)

    assert benchmark(run) == (len(records), 32)
