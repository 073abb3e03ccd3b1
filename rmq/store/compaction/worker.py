"""The loop that copies and compacts messages of compaction topics."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from rmq.store.worker import Worker

if TYPE_CHECKING:
    from rmq.store.message_store import MessageStore

COPY_INTERVAL_S = 1.0


async def compact_periodically(
    store: "MessageStore", wait_for_messages: Callable[[], Awaitable[None]]
) -> None:
    """Copy new messages soon, and compact from time to time.

    A store without such topics, or without new messages, does nothing here.
    """
    compaction, worker = store.compaction, Worker()
    interval_s = store.config.compaction_interval_ms / 1_000
    due_s = trio.current_time() + interval_s
    has_more = False
    while True:
        limit_s = max(0.0, due_s - trio.current_time()) if has_more else float("inf")
        with trio.move_on_after(limit_s):
            await wait_for_messages()
        await trio.sleep(COPY_INTERVAL_S)
        if not compaction.topics:
            continue
        await worker.try_run_all("copying compacted topics", compaction.copy_steps())
        has_more = True
        if trio.current_time() >= due_s:
            await worker.try_run_all("compacting topics", compaction.compact_steps())
            due_s = trio.current_time() + interval_s
            has_more = False
