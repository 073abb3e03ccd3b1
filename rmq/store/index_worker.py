"""The loop that indexes new messages."""

import trio

from rmq.store.flush import WaitForMessages as Wait
from rmq.store.index import BUILD_SIZE, MessageIndex
from rmq.store.worker import Worker

INDEX_INTERVAL_S = 0.02
"""Pause after a step; other threads use the core meanwhile."""

QUIET_SIZE = 256 << 10
QUIET_INTERVAL_S = 2.0
"""Maximum age of a small lag; a query reads records without entries from the log."""

FIRST_INDEXING_S = 1.0
"""Pause before the first step if an earlier run left a large lag, so that the start has
the processor.
"""


async def follow_log(
    index: MessageIndex, wait_for_messages: Wait, wait_for_lag: Wait
) -> None:
    """Index new messages when their bytes or their age reach a limit; a large lag
    delays sends.

    `wait_for_lag` returns when QUIET_SIZE bytes are not indexed. Small lags are allowed
    to grow: waking the worker costs as much as indexing hundreds of messages.
    """
    worker = Worker()
    if index.lag_bytes >= BUILD_SIZE:
        await trio.sleep(FIRST_INDEXING_S)
    while True:
        if index.lag_bytes < BUILD_SIZE:
            if index.is_complete:
                await wait_for_messages()
            with trio.move_on_after(QUIET_INTERVAL_S):
                await wait_for_lag()
                await trio.sleep(INDEX_INTERVAL_S)
        if index.lag_bytes:  # else the new messages are not visible yet
            is_here = index.is_too_late
            await worker.try_run(
                "indexing messages; queries search the log until it succeeds",
                index.catch_up if is_here else index.build,
                here=is_here,
            )
