"""CPU of one put and of one get of 32 messages; budgets 4 us and 15 us."""

import itertools

import pytest

from rmq.core.clock import SystemClock
from rmq.protocol.message import Message
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.store.results import GetStatus, PutStatus

HOST = bytes((127, 0, 0, 1)) + bytes(4)
PROPERTIES = "TAGS\x01a\x02UNIQ_KEY\x017F00000100002A9F1B2C3D4E5F600001\x02"


@pytest.fixture
def store(tmp_path):
    config = StoreConfig(root_dir=str(tmp_path), commit_log_file_size=256 << 20)
    opened = MessageStore.open(config, clock=SystemClock(), store_host=HOST)
    yield opened
    opened.close()


def message(queue_id):
    body = b"x" * 128
    return Message("Bench", queue_id, body, 0, 0, 0, HOST, properties_text=PROPERTIES)


def test_put_128_bytes(benchmark, store):
    following = itertools.cycle([message(n) for n in range(4)]).__next__
    result = benchmark(lambda: store.writes.put(following()))
    assert result.status is PutStatus.PUT_OK


def test_get_32_messages(benchmark, store):
    for _ in range(1000):
        store.writes.put(message(0))
    result = benchmark(store.reads.get, "Bench", 0, 100, 32)
    assert (result.status, result.message_count) == (GetStatus.FOUND, 32)
