"""The broker's periodic duties: forget silent clients, save changed tables."""

import logging
from collections.abc import Sequence

import trio

from rmq.broker.clients import ConsumerTable, ProducerTable
from rmq.clock import Clock
from rmq.json_table import JsonTable

SCAN_INTERVAL_S = 10.0
SAVE_INTERVAL_S = 0.2
"""Least time between two saves of topics or groups; a change after it goes at once."""

PAUSE_FACTOR = 20
"""Making texts, in the loop, takes at most a twentieth of the time; writing them, in a
worker, at most half."""

RETRY_S = 5.0
"""A table that could not be written, as the disk is full, is tried again after it."""

logger = logging.getLogger(__name__)


async def evict_idle_clients(
    producers: ProducerTable, consumers: ConsumerTable, clock: Clock, timeout_ms: int
) -> None:
    """Close the connections of clients whose heartbeats stopped; their groups hear it.

    Known in Java as `ClientHousekeepingService`.
    """
    while True:
        await trio.sleep(SCAN_INTERVAL_S)
        before = clock.now_ms() - timeout_ms
        for table in (producers, consumers):
            for _, connection, member in table.all():
                if member.last_heartbeat_ms < before:
                    connection.close("no heartbeat for too long")
                    producers.on_close(connection)
                    consumers.on_close(connection)


async def save_changes(table: JsonTable, interval_s: float) -> None:
    """Write a table in a worker thread as soon as it changes, but not more often.

    What a tool was told to be made is written before, see `JsonTable.kept`.
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
    """Write the tables that changed, at a stop; one that cannot be hinders no other."""
    for table in tables:
        try:
            await table.save()
        except OSError as error:
            logger.error("%s is not saved: %s", table.file_name, error.strerror)
