"""The loop that copies and compacts messages of compaction topics."""

from typing import TYPE_CHECKING

import trio

from rmq.store.worker import Worker

if TYPE_CHECKING:
    from rmq.store.message_store import MessageStore

COPY_INTERVAL_S = 1.0


async def compact_periodically(store: "MessageStore") -> None:
    """Copy new messages every second, and compact from time to time."""
    compaction, worker = store.compaction, Worker()
    due_s = _next_time(store)
    while True:
        await trio.sleep(COPY_INTERVAL_S)
        if not compaction.topics:
            continue
        await worker.try_run_all("copying compacted topics", compaction.copy_steps())
        if trio.current_time() >= due_s:
            await worker.try_run_all("compacting topics", compaction.compact_steps())
            due_s = _next_time(store)


def _next_time(store: "MessageStore") -> float:
    return trio.current_time() + store.config.compaction_interval_ms / 1_000
