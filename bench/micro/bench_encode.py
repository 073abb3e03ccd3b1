"""One put's share of the compiled code: stage, commit, queue entry."""

import pytest

from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.mapped_file import MappedFile

BATCH = 200
PROPERTIES = b"UNIQ_KEY\x01FD000000000000000000000000000002\x02TAGS\x01TagA\x02"


@pytest.fixture
def file(tmp_path):
    mapped = MappedFile(str(tmp_path / "0"), 1 << 20, create=True)
    mapped.allocate(mapped.size)
    return mapped


def stage(encoder, body):
    for i in range(BATCH):
        encoder.stage(
            b"topic", 0, i, i * 300, 0, 0, 1, bytes(8), 2, 0, 0, body, PROPERTIES
        )


@pytest.mark.parametrize("size", [128, 1024])
def bench_stage_200(benchmark, size):
    encoder = RecordEncoder(bytes(8))

    def run():
        stage(encoder, bytes(size))
        encoder.discard()

    benchmark(run)


@pytest.mark.parametrize("use_pwrite", [False, True])
def bench_stage_and_commit_200(benchmark, file, use_pwrite):
    encoder = RecordEncoder(bytes(8))

    def run():
        stage(encoder, bytes(128))
        file.write_position = 0
        encoder.commit(file, use_pwrite=use_pwrite)

    benchmark(run)


def bench_put_one(benchmark, file):
    encoder = RecordEncoder(bytes(8))
    body = bytes(128)

    def run():
        file.write_position = 0
        encoder.stage(b"topic", 0, 1, 300, 0, 0, 1, bytes(8), 2, 0, 0, body, PROPERTIES)
        encoder.commit(file, use_pwrite=False)

    benchmark(run)
