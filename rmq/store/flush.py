"""The loops that make the log and the queues durable.

Under SYNC_FLUSH a separate thread flushes the log: an append wakes it by the watermark,
without trio. While one flush runs, messages collect, and the next one covers them all.
Without SYNC_FLUSH the log is flushed by time and size. With a ring one thread moves its
bytes to the files, in both modes. A loop that has nothing to flush sleeps until
messages are stored.
"""

import math
from collections.abc import Awaitable, Callable

import trio

from rmq._fastpath.log.tail_ring import TailRing
from rmq.store.message_store import MessageStore
from rmq.store.queues.consume_queues import PAGE_SIZE
from rmq.store.worker import Worker

PREPARE_INTERVAL_S = 0.05
"""Pause between two checks of the pages of the ring."""

CONFIG_CHECK_S = 1.0
"""Longest wait before the limits are read again, which may change at any time."""

CHECKPOINT_DISTANCE = 128 << 20
"""Bytes of log after which the checkpoint advances; a start after a crash reads them.
"""

WaitForMessages = Callable[[], Awaitable[None]]
"""Function that returns after messages were stored."""


async def flush_on_demand(
    store: MessageStore,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Flush the log whenever a sender waits for it.

    Known in Java as `GroupCommitService`.
    """
    durability, durable = store.durability, store.positions.durable

    def flush() -> None:
        while durable.wait_for_request():
            durability.flush()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Worker().run, flush)
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            durable.end_wait()


async def write_ring(
    store: MessageStore,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Move the log from the ring to its files, under SYNC_FLUSH durably.

    Known in Java as `CommitRealTimeService`, and as `GroupCommitService`.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Worker().run, store.durability.write)
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            store.positions.durable.end_wait()


async def prepare_ring(ring: TailRing, wait_for_messages: WaitForMessages) -> None:
    """Prepare pages of the ring, so that no append waits for the file system."""
    worker = Worker()
    while True:
        prepared_at = ring.appended_offset
        await worker.run(ring.prepare_pages)
        await trio.sleep(PREPARE_INTERVAL_S)
        if ring.appended_offset == prepared_at:
            await wait_for_messages()


async def flush_periodically(
    store: MessageStore, wait_for_messages: WaitForMessages
) -> None:
    """Flush the log when enough pages are dirty, or when pages have been dirty for long
    enough.

    Fewer dirty pages wait for more messages, or for the thorough flush.
    Known in Java as `FlushRealTimeService`.
    """
    config, positions, worker = store.config, store.positions, Worker()
    last = trio.current_time()
    while True:
        interval_s = config.flush_interval_ms / 1000
        thorough_s = config.flush_thorough_interval_ms / 1000
        least = config.flush_least_pages * PAGE_SIZE
        dirty = positions.dirty_size
        if not dirty or dirty < least:
            due_s = look_s = math.inf
            if dirty:
                due_s = last + thorough_s - interval_s
                look_s = min(due_s, trio.current_time() + CONFIG_CHECK_S)
            with trio.move_on_at(look_s) as wait:
                await wait_for_messages()
            if wait.cancelled_caught and look_s < due_s:
                continue
        await trio.sleep(interval_s)
        is_due = trio.current_time() - last >= thorough_s
        dirty = positions.dirty_size
        if dirty and (is_due or dirty >= least):
            await worker.run(store.durability.flush)
            last = trio.current_time()


async def flush_queues_periodically(
    store: MessageStore, wait_for_messages: WaitForMessages
) -> None:
    """Flush queues with enough dirty pages; from time to time flush all, with the
    checkpoint.

    Only a thorough flush has work while no messages come.

    Known in Java as `FlushConsumeQueueService`.
    """
    config, worker = store.config, Worker()
    thorough_s = config.queue_flush_thorough_interval_ms / 1000
    last = trio.current_time()
    seen_offset = -1
    while True:
        interval_s = config.queue_flush_interval_ms / 1000
        await trio.sleep(interval_s)
        is_due = trio.current_time() - last >= thorough_s
        is_due |= store.checkpoint_distance >= CHECKPOINT_DISTANCE
        if store.is_flushed:
            await wait_for_messages()
            continue
        if not is_due and store.log.end_offset == seen_offset:
            with trio.move_on_at(last + thorough_s - interval_s):
                await wait_for_messages()
            continue
        seen_offset = store.log.end_offset
        steps = store.flush_steps(thorough=is_due)
        if not await worker.try_run_all("flushing the queues", steps):
            seen_offset = -1
        elif is_due:
            last = trio.current_time()


async def flush_timer_periodically(store: MessageStore) -> None:
    """Make the timer's progress durable periodically, while there is progress.

    Known in Java as `TimerFlushService`.
    """
    worker, changed = Worker(), trio.Event()
    store.signals.timer_changed = lambda: changed.set()
    while True:
        await changed.wait()
        await trio.sleep(store.config.timer_flush_interval_ms / 1_000)
        changed = trio.Event()
        await worker.try_run_all("flushing the timer", store.timer.flush_steps())
