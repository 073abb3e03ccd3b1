"""The messages of a pull, and what the same takes through `decode_stored`."""

import pytest

from rmq._fastpath.client.messages import decode_messages
from rmq._fastpath.log.encode import RecordEncoder
from rmq.protocol.records import decode_stored

COUNT = 32


@pytest.fixture
def pulled():
    encoder = RecordEncoder(bytes(8))
    text = b"UNIQ_KEY\x017F0000017918087DE3267093F6040000\x02TAGS\x01a\x02"
    for offset in range(COUNT):
        encoder.stage(
            b"Orders", 0, offset, 2, 0, 0, 3, bytes(8), 4, 0, 0, bytes(128), text
        )
    return encoder.staged_bytes()


def bench_messages(benchmark, pulled):
    benchmark(decode_messages, pulled, "Orders", None, tags=frozenset(["a"]))


def bench_stored(benchmark, pulled):
    benchmark(decode_stored, pulled)
