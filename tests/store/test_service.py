"""Waiting for the disk, and the flushes in the background."""

import trio

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


async def test_waiting_ends_with_the_timeout(open_store, autojump_clock):
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    service = StoreService(store)
    assert not await service.wait_durable(1, 5_000)
    assert trio.current_time() >= 5


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
