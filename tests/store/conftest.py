"""A real store with small files, and messages for it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from rmq.protocol.message import Message
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.store.service import StoreService
from rmq.store.worker import Worker
from rmq.testing import ManualClock

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


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
    tmp_path: Path, clock: ManualClock
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


class Watch:
    """What a service called on its store, and at which second."""

    def __init__(self, store, monkeypatch):
        self.calls = []
        for part, name in (
            (store.durability, "flush"),
            (store, "flush_steps"),
            (store.log, "allocate_ahead"),
            (store.disk, "update_refusal"),
        ):
            self.wrap(part, name, monkeypatch)

    def wrap(self, part, name, monkeypatch):
        method = getattr(part, name)

        def called(**options):
            seconds = round(trio.current_time(), 3)
            self.calls.append((name, seconds, *options.values()))
            return method(**options)

        monkeypatch.setattr(part, name, called)

    def times(self, name, *options):
        return [
            call[1] for call in self.calls if call[0] == name and call[2:] == options
        ]


@pytest.fixture
def works_in_loop(monkeypatch):
    """A clock that jumps does not wait for threads: do their work in the loop."""

    async def in_loop(_self, work):
        if (
            getattr(work, "__name__", "") != "write"
        ):  # the loop of a thread, which would never end
            work()

    monkeypatch.setattr(Worker, "run", in_loop)


@pytest.fixture
def run_for(monkeypatch, works_in_loop):
    """Run the service of a store for so many seconds that pass at once."""

    async def run(store, seconds, *, at=None):
        watch = Watch(store, monkeypatch)
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                await nursery.start(StoreService(store).run)
                if at is not None:
                    await at()
        return watch

    return run
