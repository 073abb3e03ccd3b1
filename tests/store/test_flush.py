"""The flushes in the background."""

import errno
import threading

import pytest
import trio
import trio.testing

from rmq.core.errors import LogFailed
from rmq.store.checkpoint import Checkpoint
from rmq.store.commit_log import CommitLog
from rmq.store.config import FlushDiskType
from rmq.store.results import PutStatus
from rmq.store.service import StoreService
from tests.waiting import until, wait_until


async def test_a_flush_needs_no_turn_of_the_loop(open_store, make_message, nursery):
    """The loop may be busy: a thread of its own flushes and moves the watermark."""
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    await nursery.start(StoreService(store).run)
    await trio.testing.wait_all_tasks_blocked()
    for _ in range(3):
        end = store.writes.put(make_message()).end_offset
        store.writes.end_batch()
        durable = store.positions.durable
        wait_until(lambda: durable.value >= end)  # noqa: B023 - the task does not run
        assert durable.value == end
    nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("without_ring")
async def test_what_arrives_during_a_flush_is_one_group(
    open_store, make_message, nursery, monkeypatch
):
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    began, may_end, flush = threading.Event(), threading.Event(), CommitLog.flush

    def slow(self, durable):
        began.set()
        may_end.wait(10)
        return flush(self, durable)

    monkeypatch.setattr(CommitLog, "flush", slow)
    await nursery.start(StoreService(store).run)
    await trio.testing.wait_all_tasks_blocked()
    for number in range(50):
        end = store.writes.put(make_message()).end_offset
        store.writes.end_batch()
        if number == 0:
            assert began.wait(10)
            assert store.positions.durable.value == 0
    may_end.set()
    with trio.fail_after(10):
        await until(lambda: store.positions.durable.value == end)
    assert store.statistics().log_flushes <= 2
    nursery.cancel_scope.cancel()


async def test_few_dirty_bytes_wait_for_the_thorough_flush(
    open_store, make_message, run_for, autojump_clock
):
    store = open_store()
    store.writes.put(make_message())
    watch = await run_for(store, 10.9)
    assert watch.times("flush") == [10.0]
    assert store.positions.dirty_size == 0


async def test_many_dirty_bytes_are_flushed_at_once(
    open_store, make_message, run_for, autojump_clock
):
    store = open_store()
    store.writes.put(make_message(b"x" * 20_000))
    watch = await run_for(store, 2.1)
    assert watch.times("flush") == [0.5]


async def test_nothing_dirty_means_no_flush(open_store, run_for, autojump_clock):
    watch = await run_for(open_store(), 30.1)
    assert watch.times("flush") == []


async def test_queues_are_flushed_each_second_and_all_each_minute(
    open_store, make_message, run_for, autojump_clock
):
    store = open_store()

    async def put_each_second():
        await trio.sleep(0.5)
        for _ in range(60):
            store.writes.put(make_message())
            store.writes.end_batch()
            await trio.sleep(1)

    watch = await run_for(store, 60.9, at=put_each_second)
    end = store.log.end_offset
    assert watch.times("flush_steps", False) == list(range(1, 60))
    assert watch.times("flush_steps", True) == [60]
    saved = Checkpoint.load(store.directory.checkpoint)
    assert saved.logics_physical_offset == saved.confirm_offset == end


async def test_queues_are_flushed_only_after_messages_and_all_within_a_minute(
    open_store, make_message, run_for, autojump_clock
):
    store = open_store()
    store.writes.put(make_message())

    async def put_later():
        await trio.sleep(200)
        store.writes.put(make_message())
        store.writes.end_batch()

    watch = await run_for(store, 300, at=put_later)
    assert watch.times("flush_steps", False) == [1]
    assert watch.times("flush_steps", True) == [60, 201]
    assert store.is_flushed


async def test_intervals_are_settings(
    open_store, make_message, run_for, autojump_clock
):
    store = open_store(
        flush_interval_ms=100, flush_least_pages=0, queue_flush_interval_ms=200
    )

    async def put_often():
        for _ in range(100):
            store.writes.put(make_message())
            store.writes.end_batch()
            await trio.sleep(0.011)

    watch = await run_for(store, 1.05, at=put_often)
    assert watch.times("flush")[0] == 0.1
    assert watch.times("flush_steps", False) == [0.2, 0.4, 0.6, 0.8, 1.0]


@pytest.mark.usefixtures("without_ring")
async def test_a_failed_flush_ends_the_service(
    open_store, make_message, monkeypatch, caplog
):
    """It is reported once, as what it was: in the log, to operators, by the error."""
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)

    def broken(_self, _durable):
        raise OSError(errno.EIO, "Input/output error", "the log")

    monkeypatch.setattr(CommitLog, "flush", broken)
    failed = None
    with trio.fail_after(10):
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(StoreService(store).run)
                store.writes.put(make_message())
                store.writes.end_batch()
                await trio.sleep_forever()
        except BaseExceptionGroup as group:
            failed = group
    while isinstance(failed, BaseExceptionGroup):
        [failed] = failed.exceptions
    assert isinstance(failed, LogFailed)
    reason = "flushing the log failed: Input/output error"
    assert str(failed).startswith(f"{reason}; the store refuses all messages")
    assert caplog.messages == [f"messages are refused: {reason}"]
    assert store.durability.refuse_reason == reason
    assert store.positions.durable.value == 0
    assert store.statistics().put_failed == 0
    assert store.writes.put(make_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.statistics().put_failed == 1
