"""Stores of Java, unpacked, and a small one of ours with every kind of file."""

import pytest

from rmq.core.clock import SystemClock
from rmq.protocol.message import Message
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from tests.golden.recordings import copy_store

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
SETTINGS = {
    "commit_log_file_size": 65536,
    "queue_file_size": 2000,
    "index_slots": 1000,
    "index_entries": 4000,
}


@pytest.fixture
def unpack(tmp_path):
    def unpack_(name):
        made = tmp_path / name
        return made if made.exists() else copy_store(name, tmp_path)

    return unpack_


@pytest.fixture
def open_store(tmp_path):
    opened = []

    def open_(root=None, **settings):
        config = StoreConfig(
            root_dir=str(root or tmp_path / "store"), **SETTINGS | settings
        )
        store = MessageStore.open(config, clock=SystemClock(), store_host=HOST)
        opened.append(store)
        return store

    yield open_
    for store in opened:
        store.close()


@pytest.fixture
def filled(open_store):
    """Root of a stopped store: 3 queues, 300 messages, several files of each kind."""
    store = open_store()
    for n in range(300):
        body = b"%d" % n + b"." * (300 + n % 700)
        store.writes.put(
            Message("Topic", n % 3, body, 0, 0, 1, HOST, properties={"KEYS": f"k{n}"})
        )
    store.close()
    return store.directory.root
