"""The loops that make the log and the queues durable.

Under SYNC_FLUSH one thread flushes the log and does nothing else: an append wakes it
through the watermark, without trio.  While one fdatasync runs, messages collect, and
the next one covers them all.  Otherwise the log is flushed by time and size.
"""

from functools import partial

import trio

from rmq.store.consume_queues import PAGE_SIZE
from rmq.store.message_store import MessageStore
from rmq.store.worker import Worker

CHECKPOINT_DISTANCE = 128 << 20
"""Bytes of log after which the checkpoint moves: a start after a crash reads them."""


async def flush_on_demand(
    store: MessageStore,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Flush the log whenever a sender waits for it.

    Known in Java as `GroupCommitService`.
    """
    durability = store.durability

    def flush() -> None:
        while durability.durable.wait_for_demand():
            durability.flush()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Worker().run, flush)
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            durability.durable.end_demand()


async def flush_periodically(store: MessageStore) -> None:
    """Flush the log when enough pages are dirty, or for long enough.

    Known in Java as `FlushRealTimeService`.
    """
    config, durability, worker = store.config, store.durability, Worker()
    last = trio.current_time()
    while True:
        await trio.sleep(config.flush_interval_ms / 1000)
        least = config.flush_least_pages * PAGE_SIZE
        thorough_s = config.flush_thorough_interval_ms / 1000
        is_due = trio.current_time() - last >= thorough_s
        dirty = durability.dirty_size
        if dirty and (is_due or dirty >= least):
            await worker.run(durability.flush)
            last = trio.current_time()


async def commit_periodically(store: MessageStore) -> None:
    """Move staged bytes to the files when they are enough, or old enough.

    Known in Java as `CommitRealTimeService`.
    """
    config, durability, worker = store.config, store.durability, Worker()
    least = config.commit_least_pages * PAGE_SIZE
    thorough_s = config.commit_thorough_interval_ms / 1000
    last = trio.current_time()
    while True:
        await trio.sleep(config.commit_interval_ms / 1000)
        size = durability.uncommitted_size
        is_due = trio.current_time() - last >= thorough_s
        if size and (is_due or size >= least):
            await worker.run(durability.commit)
            last = trio.current_time()


async def flush_queues_periodically(store: MessageStore) -> None:
    """Flush queues by their dirty pages; from time to time all, with the checkpoint.

    Known in Java as `FlushConsumeQueueService`.
    """
    config, worker = store.config, Worker()
    thorough_s = config.queue_flush_thorough_interval_ms / 1000
    last = trio.current_time()

    while True:
        await trio.sleep(config.queue_flush_interval_ms / 1000)
        is_due = trio.current_time() - last >= thorough_s
        is_due |= store.checkpoint_distance >= CHECKPOINT_DISTANCE
        flush = partial(store.flush_queues, thorough=is_due)
        if await worker.attempt("flushing the queues", flush) and is_due:
            last = trio.current_time()
