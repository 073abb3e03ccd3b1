"""The loop that indexes new messages."""

from collections.abc import Awaitable, Callable

import trio

from rmq.store.index import BUILD_SIZE, MessageIndex
from rmq.store.worker import Worker

INDEX_INTERVAL_S = 0.05
QUIET_INTERVAL_S = 0.2
"""How long a lag below QUIET_SIZE may grow: a query reads what has no entries yet."""

QUIET_SIZE = 64 << 10
FIRST_INDEXING_S = 1.0
"""Pause before the first step, which after a crash would slow down the start."""


async def follow_log(
    index: MessageIndex, wait_for_messages: Callable[[], Awaitable[None]]
) -> None:
    """Index new messages; a lag above the limit delays sends.

    Small lags are allowed to grow: waking the worker costs as much as indexing
    hundreds of messages.
    """
    worker = Worker()
    await trio.sleep(FIRST_INDEXING_S)
    while True:
        if index.lag < BUILD_SIZE:
            if index.is_complete:
                await wait_for_messages()
            await trio.sleep(INDEX_INTERVAL_S)
            if index.lag < QUIET_SIZE:
                await trio.sleep(QUIET_INTERVAL_S - INDEX_INTERVAL_S)
        if index.lag:  # else the new messages are not visible yet
            await worker.attempt(
                "indexing (queries read the log)", index.build, here=index.is_too_late
            )
