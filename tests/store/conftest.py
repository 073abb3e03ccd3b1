"""A real store with small files, and messages for it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmq.protocol.message import Message
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")


class HandClock:
    """Time that moves when a test says so."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def make_message() -> Callable[..., Message]:
    def make(body=b"body", topic="Topic", queue_id=0, **extra):
        extra.setdefault("born_host", HOST)
        extra.setdefault("sys_flag", 0)
        return Message(
            topic=topic,
            queue_id=queue_id,
            body=body,
            flag=0,
            born_timestamp=1,
            **extra,
        )

    return make


@pytest.fixture
def open_store(
    tmp_path: Path, clock: HandClock
) -> Iterator[Callable[..., MessageStore]]:
    """Open the one directory of the test; what is open at the end is closed."""
    opened = []

    def open_(root=None, **settings):
        settings.setdefault("commit_log_file_size", 65536)
        settings.setdefault("queue_file_size", 200)
        settings.setdefault("index_slots", 500)
        settings.setdefault("index_entries", 2_000)
        config = StoreConfig(root_dir=str(root or tmp_path / "store"), **settings)
        store = MessageStore.open(config, clock=clock, store_host=HOST)
        opened.append(store)
        return store

    yield open_
    for store in opened:
        store.close()
