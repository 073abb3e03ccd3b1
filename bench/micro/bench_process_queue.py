"""The way of a message through a consumer: noted, handed out, acknowledged."""

from collections import deque
from contextlib import suppress

import pytest

from rmq._fastpath.client.messages import decode_messages
from rmq._fastpath.client.process_queue import (
    FetchBuffer,
    Lease,
    MessageIterator,
    ProcessQueue,
)
from rmq._fastpath.log.encode import RecordEncoder

COUNT = 32


@pytest.fixture
def held():
    lease = Lease()
    lease.buffer, lease.state = FetchBuffer(), ProcessQueue(0)
    lease.buffer.ready, lease.buffer.blocked = deque(), set()
    return lease


@pytest.fixture
def messages(held):
    encoder = RecordEncoder(bytes(8))
    for offset in range(COUNT):
        encoder.stage(
            b"Orders", 0, offset, 2, 0, 0, 3, bytes(8), 4, 0, 0, bytes(128), b""
        )
    return decode_messages(encoder.staged_bytes(), "Orders", None, held)


def bench_handout(benchmark, held, messages):
    handout = MessageIterator(None, held.buffer)
    handout.is_plain = True

    def all_messages():
        held.state.reset(0)
        held.state.add(messages, COUNT)
        held.buffer.ready.extend(messages)
        for _ in messages:
            with suppress(StopIteration):
                handout.__anext__().send(None)

    benchmark(all_messages)


def bench_acks(benchmark, held, messages):
    def all_messages():
        held.state.reset(0)
        held.state.add(messages, COUNT)
        for each in messages:
            each.ack()

    benchmark(all_messages)
