"""Waiting for the disk, and the flushes in the background."""

import errno
import threading
import time

import pytest
import trio
import trio.testing

from rmq.errors import StoreError
from rmq.store import service as service_module
from rmq.store.checkpoint import Checkpoint
from rmq.store.commit_log import CommitLog
from rmq.store.config import FlushDiskType
from rmq.store.service import StoreService


async def test_a_waiter_is_released_by_the_flush(open_store, make_message, nursery):
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    service = StoreService(store)
    await nursery.start(service.run)
    ends = [store.put(make_message()).end_offset for _ in range(5)]
    with trio.fail_after(10):
        assert await service.wait_durable(ends[-1], 5_000)
    assert store.durable.value >= ends[-1]
    assert store.max_offset("Topic", 0) == 5
    nursery.cancel_scope.cancel()


async def test_a_flush_needs_no_turn_of_the_loop(open_store, make_message, nursery):
    """The loop may be busy: a thread of its own flushes and moves the watermark."""
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    await nursery.start(StoreService(store).run)
    await trio.testing.wait_all_tasks_blocked()
    for _ in range(3):
        end = store.put(make_message()).end_offset
        store.end_batch()
        give_up_s = time.monotonic() + 10
        while store.durable.value < end and time.monotonic() < give_up_s:
            time.sleep(0.001)  # noqa: ASYNC251
        assert store.durable.value == end
    nursery.cancel_scope.cancel()


async def test_what_arrives_during_a_flush_is_one_group(
    open_store, make_message, nursery, monkeypatch
):
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    began, may_end, flush = threading.Event(), threading.Event(), CommitLog.flush

    def slow(self):
        began.set()
        may_end.wait(10)
        return flush(self)

    monkeypatch.setattr(CommitLog, "flush", slow)
    service = StoreService(store)
    await nursery.start(service.run)
    await trio.testing.wait_all_tasks_blocked()
    for number in range(50):
        end = store.put(make_message()).end_offset
        store.end_batch()
        if number == 0:
            assert began.wait(10)
            assert store.durable.value == 0
    may_end.set()
    with trio.fail_after(10):
        assert await service.wait_durable(end, 5_000)
        await until(lambda: store.statistics().log_flushes >= 2)
    assert store.statistics().log_flushes <= 3  # the caller's own wish may be one
    nursery.cancel_scope.cancel()


async def test_waiting_ends_with_the_timeout(open_store, autojump_clock, nursery):
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    service = StoreService(store)
    await nursery.start(service.run)
    assert not await service.wait_durable(1, 5_000)
    assert trio.current_time() >= 5
    nursery.cancel_scope.cancel()


async def test_under_async_flush_a_waiter_is_served_too(
    open_store, make_message, nursery
):
    store = open_store()
    service = StoreService(store)
    await nursery.start(service.run)
    end = store.put(make_message()).end_offset
    with trio.fail_after(10):
        assert await service.wait_durable(end, 5_000)
    nursery.cancel_scope.cancel()


async def until(is_so):
    """Look again and again: a worker thread does what is waited for."""
    is_over = is_so()
    while not is_over:
        await trio.sleep(0.01)
        is_over = is_so()


@pytest.mark.parametrize("max_lag", [1 << 20, -1])
async def test_the_index_follows_the_log(
    open_store, make_message, nursery, monkeypatch, max_lag
):
    monkeypatch.setattr(service_module, "FIRST_INDEXING_S", 0.0)
    store = open_store()
    object.__setattr__(store.config, "index_max_lag", max_lag)
    await nursery.start(StoreService(store).run)
    for number in range(10):
        store.put(make_message(properties_text=f"KEYS\x01k{number}\x02"))
    store.end_batch()
    assert store.index_lag
    with trio.fail_after(10):
        await until(lambda: not store.index_lag)
    assert store.index.tables[-1].entry_count == 11
    nursery.cancel_scope.cancel()


async def test_an_index_that_cannot_be_written_is_tried_again(
    open_store, make_message, nursery, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(service_module, "FIRST_INDEXING_S", 0.0)
    monkeypatch.setattr(service_module, "INDEX_RETRY_S", 0.01)
    store = open_store()
    in_the_way = tmp_path / "store" / "index"
    in_the_way.write_text("")
    store.put(make_message(properties_text="KEYS\x01k\x02"))
    await nursery.start(StoreService(store).run)
    with trio.fail_after(10):
        await until(lambda: "index" in caplog.text)
        assert store.query("Topic", "k", 1, 0, 2**62) == [0]
        in_the_way.unlink()
        await until(lambda: not store.index_lag)
    nursery.cancel_scope.cancel()


class Watch:
    """What a service called on its store, and at which second."""

    def __init__(self, store, monkeypatch):
        self.calls = []
        for name in ("flush_log", "flush_queues", "allocate_ahead", "check_disk"):
            self.wrap(store, monkeypatch, name)

    def wrap(self, store, monkeypatch, name):
        method = getattr(store, name)

        def called(**options):
            seconds = round(trio.current_time(), 3)
            self.calls.append((name, seconds, *options.values()))
            return method(**options)

        monkeypatch.setattr(store, name, called)

    def times(self, name, *options):
        return [
            call[1] for call in self.calls if call[0] == name and call[2:] == options
        ]


@pytest.fixture
def run_for(monkeypatch):
    """Run the service of a store for so many seconds that pass at once.

    Such a clock does not wait for threads, so their work is done in the loop.
    """

    async def in_loop(_self, work, _limiter):
        work()

    monkeypatch.setattr(StoreService, "_in_thread", in_loop)

    async def run(store, seconds, *, at=None):
        watch = Watch(store, monkeypatch)
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                await nursery.start(StoreService(store).run)
                if at is not None:
                    await at()
        return watch

    return run


async def test_few_dirty_bytes_wait_for_the_thorough_flush(
    open_store, make_message, run_for, autojump_clock
):
    store = open_store()
    store.put(make_message())
    watch = await run_for(store, 10.9)
    assert watch.times("flush_log") == [10.0]
    assert store.dirty_log_size == 0


async def test_many_dirty_bytes_are_flushed_at_once(
    open_store, make_message, run_for, autojump_clock
):
    store = open_store()
    store.put(make_message(b"x" * 20_000))
    watch = await run_for(store, 2.1)
    assert watch.times("flush_log") == [0.5]


async def test_nothing_dirty_means_no_flush(open_store, run_for, autojump_clock):
    watch = await run_for(open_store(), 30.1)
    assert watch.times("flush_log") == []


async def test_queues_are_flushed_each_second_and_all_each_minute(
    open_store, make_message, run_for, autojump_clock
):
    store = open_store()
    end = store.put(make_message()).end_offset
    watch = await run_for(store, 60.9)
    assert watch.times("flush_queues", False) == list(range(1, 60))
    assert watch.times("flush_queues", True) == [60]
    saved = Checkpoint.load(store.directory.checkpoint)
    assert saved.logics_physical_offset == saved.confirm_offset == end


async def test_intervals_are_settings(
    open_store, make_message, run_for, autojump_clock
):
    store = open_store(
        flush_interval_ms=100, flush_least_pages=0, queue_flush_interval_ms=200
    )
    store.put(make_message())
    watch = await run_for(store, 1.05)
    assert watch.times("flush_log") == [0.1]
    assert watch.times("flush_queues", False) == [0.2, 0.4, 0.6, 0.8, 1.0]


async def test_disk_is_looked_at_from_the_start(open_store, run_for, autojump_clock):
    watch = await run_for(open_store(), 20.5)
    assert watch.times("check_disk") == [0, 10, 20]


async def test_next_file_is_prepared_while_the_last_fills(
    open_store, make_message, run_for, autojump_clock
):
    store = open_store()
    store.put(make_message(b"x" * 50_000))
    names = []

    async def at():
        await trio.sleep(0.06)
        names.extend(sorted(p.name for p in store.directory.commit_log.iterdir()))

    await run_for(store, 0.2, at=at)
    assert [int(name) for name in names] == [0, 65536]
    store.close()
    assert len(list(store.directory.commit_log.iterdir())) == 1


async def test_a_failed_flush_ends_the_service(open_store, make_message, monkeypatch):
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)

    def broken(_self):
        raise OSError(errno.EIO, "Input/output error", "the log")

    monkeypatch.setattr(CommitLog, "flush", broken)
    failed = None
    with trio.fail_after(10):
        try:
            async with trio.open_nursery() as nursery:
                service = StoreService(store)
                await nursery.start(service.run)
                end = store.put(make_message()).end_offset
                assert not await service.wait_durable(end, 5_000)
        except BaseExceptionGroup as group:
            failed = group
    while isinstance(failed, BaseExceptionGroup):
        [failed] = failed.exceptions
    assert isinstance(failed, StoreError)
    assert "writing the log failed: Input/output error" in str(failed)
    assert store.durable.value == 0
    assert not store.is_writable


async def test_waiters_are_released_in_the_order_of_their_offsets(
    open_store, make_message, nursery
):
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    service = StoreService(store)
    ends = [store.put(make_message()).end_offset for _ in range(3)]
    answers = {}

    async def wait(offset, timeout_ms):
        answers[offset] = await service.wait_durable(offset, timeout_ms)

    with trio.fail_after(10):
        async with trio.open_nursery() as waiters:
            waiters.start_soon(wait, ends[2], 5_000)
            waiters.start_soon(wait, ends[0], 5_000)
            waiters.start_soon(wait, ends[2] + 1, 20)
            await nursery.start(service.run)
    assert answers == {ends[0]: True, ends[2]: True, ends[2] + 1: False}
    assert await service.wait_durable(ends[1], 0)
    nursery.cancel_scope.cancel()


async def test_one_waiter_too_many_is_told_at_once(
    open_store, autojump_clock, monkeypatch
):
    monkeypatch.setattr(service_module, "WAITER_LIMIT", 2)
    service = StoreService(open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH))
    async with trio.open_nursery() as waiters:
        waiters.start_soon(service.wait_durable, 1, 5_000)
        waiters.start_soon(service.wait_durable, 1, 5_000)
        await trio.testing.wait_all_tasks_blocked()
        assert not await service.wait_durable(1, 5_000)
        assert trio.current_time() < 1
        waiters.cancel_scope.cancel()


async def test_what_timed_out_makes_room_for_others(
    open_store, autojump_clock, monkeypatch, nursery
):
    """A disk that hangs must not leave its waiters counted for ever."""
    monkeypatch.setattr(service_module, "WAITER_LIMIT", 2)
    service = StoreService(open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH))
    await nursery.start(service.run)
    for _ in range(3):
        started = trio.current_time()
        assert not await service.wait_durable(1, 5_000)
        assert trio.current_time() - started >= 5
    nursery.cancel_scope.cancel()


async def test_an_idle_store_wakes_for_its_timers_only(
    open_store, make_message, run_for, autojump_clock, monkeypatch
):
    """The index and the look-ahead sleep until something is stored."""
    naps = []
    sleep = trio.sleep

    async def counted(seconds):
        naps.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(trio, "sleep", counted)
    store = open_store()
    store.put(make_message(properties_text="KEYS\x01k\x02"))
    await run_for(store, 30.5)
    assert not store.index_lag
    assert len(naps) < 50


async def test_staged_messages_are_committed_by_interval(
    open_store, make_message, run_for, autojump_clock
):
    store = open_store(staging_enabled=True, commit_interval_ms=100)
    store.put(make_message())
    seen = []

    async def at():
        store.put(make_message())
        for _ in range(5):
            seen.append(store.max_offset("Topic", 0))
            await trio.sleep(0.1)

    await run_for(store, 1.05, at=at)
    assert seen[0] == 0
    assert seen[-1] == 2
    assert store.uncommitted_size == 0
    assert store.dirty_log_size > 0


async def test_few_staged_pages_wait_for_the_thorough_commit(
    open_store, make_message, run_for, autojump_clock
):
    store = open_store(
        staging_enabled=True, commit_interval_ms=100, commit_thorough_interval_ms=950
    )
    store.put(make_message())
    await run_for(store, 0.85)
    assert store.max_offset("Topic", 0) == 0
    store.put(make_message(b"x" * 20_000))
    await run_for(store, 0.15)
    assert store.max_offset("Topic", 0) == 2
