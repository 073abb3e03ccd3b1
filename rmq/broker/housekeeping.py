"""The broker's periodic work: close silent clients, save changed tables."""

import logging
from collections.abc import Awaitable, Callable, Sequence

import trio

from rmq.broker.clients import ConsumerTable, ProducerTable
from rmq.config.json_table import JsonTable
from rmq.core.clock import Clock
from rmq.core.clock_steps import CHECK_S, ClockSteps
from rmq.remoting.turns import TurnTaker

SCAN_INTERVAL_S = 10.0
PAUSE_FACTOR = 20
"""A save pauses 20 times as long as it encoded in the event loop, and at least as long
as the whole save took.
"""

RETRY_S = 5.0
"""Pause after a failed save, for example on a full disk."""

logger = logging.getLogger(__name__)


async def evict_idle_clients(
    producers: ProducerTable,
    consumers: ConsumerTable,
    clock: Clock,
    steps: ClockSteps,
    timeout_ms: int,
    next_turn: Callable[[], Awaitable[None]],
) -> None:
    """Close connections of clients without heartbeats, which notifies their groups.

    A machine that stops leaves thousands of them; other tasks run in between.
    Known in Java as `ClientHousekeepingService`.
    """
    while True:
        await trio.sleep(SCAN_INTERVAL_S)
        steps.notice_step()
        before = clock.now_ms() - timeout_ms
        turns = TurnTaker(next_turn)
        for table in (producers, consumers):
            for group in table.group_names():
                silent = [
                    connection
                    for connection, member in table.members(group).items()
                    if member.last_heartbeat_ms < before
                ]
                for connection in silent:
                    if connection.is_open:
                        connection.close("no heartbeat for too long")
                        producers.on_close(connection)
                        consumers.on_close(connection)
                    await turns()
                await turns()


async def watch_clock(steps: ClockSteps) -> None:
    """Detect that the wall clock was set, until cancelled."""
    while True:
        await trio.sleep(CHECK_S)
        steps.notice_step()


async def save_changes(table: JsonTable, interval_s: float) -> None:
    """Save a table in a worker thread when it changes, at most once in `interval_s`.

    The answer to an admin tool waits for the save, see `JsonTable.wait_saved`.
    """
    pause_s = interval_s
    while True:
        await trio.sleep(pause_s)
        await table.changed.wait()
        began = trio.current_time()
        try:
            text_s = await table.save()
            save_s = trio.current_time() - began
            pause_s = max(interval_s, text_s * PAUSE_FACTOR, save_s)
        except OSError as error:
            logger.error("%s is not saved yet: %s", table.file_name, error.strerror)
            pause_s = RETRY_S


async def save_now(tables: Sequence[JsonTable]) -> None:
    """Save every changed table at shutdown; a failed save does not stop the others."""
    for table in tables:
        try:
            await table.save()
        except OSError as error:
            logger.error("%s is not saved: %s", table.file_name, error.strerror)
