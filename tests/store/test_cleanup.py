"""Which files are deleted, when, and which stay."""

import os
import shutil
from types import SimpleNamespace

import pytest

from rmq.store.cleanup_worker import clean
from tests.store.steps import result_of

HOUR_MS = 3_600_000


@pytest.fixture
def full_store(open_store, make_message, clock):
    """A store of several log files, all written now and durable and indexed."""

    def make(**settings):
        store = open_store(delete_hours="", delete_pause_ms=0, **settings)
        for number in range(400):
            text = f"KEYS\x01k{number}\x02"
            queue_id = int(number < 50)
            store.writes.put(
                make_message(bytes(500), queue_id=queue_id, properties_text=text)
            )
        store.durability.flush()
        while store.index.lag_bytes:
            store.index.build()
        for file in store.log.files.files:
            os.utime(file.path, (clock.ms / 1000, clock.ms / 1000))
        return store

    return make


def bases(store):
    return [file.base_offset for file in store.log.files.files]


def log_names(store):
    return sorted(os.listdir(store.directory.commit_log))


@pytest.fixture
def disk(monkeypatch):
    """Say how full the disk is."""

    def set_(percent):
        usage = SimpleNamespace(total=100, used=percent, free=100 - percent)
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)

    set_(10)
    return set_


async def test_nothing_goes_before_its_time(full_store, disk, clock):
    store = full_store()
    store.cleaner.request()
    clock.ms += 72 * HOUR_MS - 1_000
    await clean(store)
    assert bases(store)[0] == 0
    assert len(bases(store)) > 3


async def test_nothing_goes_without_a_reason(full_store, disk, clock):
    store = full_store()
    clock.ms += 100 * HOUR_MS
    await clean(store)
    assert bases(store)[0] == 0


@pytest.mark.parametrize("reason", ["hour", "request", "disk"])
async def test_expired_files_go_but_the_last(full_store, disk, clock, reason):
    hours = ";".join(str(hour) for hour in range(24)) if reason == "hour" else ""
    store = full_store()
    object.__setattr__(store.config, "delete_hours", hours)
    if reason == "request":
        store.cleaner.request()
    if reason == "disk":
        disk(80)
    names = log_names(store)
    clock.ms += 73 * HOUR_MS
    await clean(store)
    assert len(bases(store)) == 1
    assert log_names(store) == names[-1:]


async def test_queues_and_index_follow(full_store, disk, clock, tmp_path):
    store = full_store(index_entries=50)
    store.queues.flush()
    store.cleaner.request()
    clock.ms += 73 * HOUR_MS
    await clean(store)
    start = store.log.min_offset
    assert start > 0
    first = store.reads.min_offset("Topic", 0)
    assert store.queues.get("Topic", 0).entry_at(first)[0] >= start
    assert (
        store.reads.min_offset("Topic", 1) == store.reads.max_offset("Topic", 1) == 50
    )
    folder = tmp_path / "store" / "consumequeue" / "Topic"
    names = sorted(path.name for path in (folder / "0").iterdir())
    assert int(names[0]) == first * 20 // 200 * 200
    assert len(list((folder / "1").iterdir())) == 1
    assert store.index.files[0].end_offset >= start
    assert len(list((tmp_path / "store" / "index").iterdir())) == len(store.index.files)
    assert result_of(store.reads.query("Topic", "k399", 9, 0, 2**62))
    assert result_of(store.reads.query("Topic", "k3", 9, 0, 2**62)) == []


async def test_a_cleaned_store_opens_again(
    full_store, disk, clock, open_store, make_message
):
    store = full_store()
    disk(90)
    await clean(store)
    state = (
        store.reads.min_offset("Topic", 0),
        store.reads.max_offset("Topic", 0),
        bases(store),
    )
    assert len(state[2]) == 1
    store.close()
    again = open_store()
    assert again.recovery.was_clean
    assert state == (
        again.reads.min_offset("Topic", 0),
        again.reads.max_offset("Topic", 0),
        bases(again),
    )
    assert again.writes.put(make_message(queue_id=1)).queue_offset == 50


async def test_a_full_disk_does_not_wait_for_age(full_store, disk):
    store = full_store()
    disk(86)
    await clean(store)
    assert len(bases(store)) == 1


async def test_unless_that_is_forbidden(full_store, disk):
    store = full_store(clean_forcibly=False)
    disk(86)
    await clean(store)
    assert bases(store)[0] == 0


async def test_a_batch_at_a_time(full_store, disk):
    store = full_store(delete_batch=1)
    disk(86)
    count = len(bases(store))
    await clean(store)
    assert len(bases(store)) == count - 1


async def test_what_is_not_indexed_stays(full_store, disk):
    store = full_store()
    store.index.next_offset = 65536
    disk(86)
    await clean(store)
    assert bases(store)[0] == 65536


async def test_held_files_stay_until_their_time(full_store, disk, clock):
    store = full_store()
    file = store.log.files.files[0]
    view = file.view(0, 10)
    disk(86)
    await clean(store)
    assert bases(store)[0] == 0
    clock.ms += 120_000
    await clean(store)
    assert bases(store)[0] > 0
    assert file.path.rsplit("/")[-1] not in log_names(store)
    assert not file.is_closed
    view.release()
    await clean(store)
    assert file.is_closed


async def test_a_request_lasts_twenty_rounds(full_store, disk, clock):
    store = full_store()
    store.cleaner.request()
    allowed = [store.cleaner.expiry_ms(10) is not None for _ in range(21)]
    assert allowed == [True] * 20 + [False]


async def test_what_somebody_needs_stays_until_the_disk_is_full(
    full_store, disk, clock, caplog
):
    store = full_store()
    first, second, third, *_ = bases(store)
    store.cleaner.needed_from = lambda: third - 1
    clock.ms += 100 * HOUR_MS
    store.cleaner.request()
    await clean(store)
    assert bases(store)[0] == second
    assert first == 0
    assert not caplog.records
    disk(90)
    await clean(store)
    assert bases(store)[0] > third
    assert "still needs it" in caplog.text


async def test_nobody_needs_anything(full_store, disk, clock):
    store = full_store()
    store.cleaner.needed_from = lambda: None
    clock.ms += 100 * HOUR_MS
    store.cleaner.request()
    await clean(store)
    assert len(bases(store)) == 1


def test_queues_are_looked_at_again_on_request(open_store, make_message):
    """Only those with more than one file: the others have nothing to unlink."""
    store = open_store()
    store.writes.put(make_message(topic="Short"))
    for _ in range(11):
        store.writes.put(make_message())
    store.queues.flush()
    steps = []
    for _ in range(2):
        for step in store.cleaner.clean_queues():
            step()
            steps.append(step)
    assert len(steps) == 1
    store.cleaner.request_queues()
    for step in store.cleaner.clean_queues():
        step()
        steps.append(step)
    assert len(steps) == 2
